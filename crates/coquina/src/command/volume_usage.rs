//! `coquina volume du`: what of the volumes is written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use coquina_base::{Nearest, format_size_bytes};
use coquina_client::{ClientError, Volume, VolumeOptions};
use coquina_control::{Client, api};
use coquina_protocol::ExtentKind;
use serde::Serialize;

use super::connect::native_addresses;
use crate::arguments::Global;
use crate::error::CliError;
use crate::output::{self, print, print_json};
use crate::progress::Progress;

/// What is asked for in one call: the client asks for its chunks at the same time.
const PIECE_BYTES: u64 = 256 << 20;
/// Calls at the same time.
const CALLS: usize = 4;

/// What volumes take, in bytes.
#[derive(Serialize)]
struct Usages {
    volumes: Vec<Usage>,
    /// Of all copies of these volumes.
    drives_bytes: u64,
}

#[derive(Serialize)]
struct Usage {
    name: String,
    pool: String,
    copies: u32,
    size_bytes: u64,
    data_bytes: u64,
    /// Zeros whose space is kept, as `--no-hole` of an NBD client asks for.
    reserved_bytes: u64,
    /// `data_bytes` and `reserved_bytes`, `copies` times.
    drives_bytes: u64,
}

/// What was found of one volume.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Found {
    data_bytes: u64,
    reserved_bytes: u64,
}

impl std::ops::Add for Found {
    type Output = Found;

    fn add(self, other: Found) -> Found {
        Found {
            data_bytes: self.data_bytes + other.data_bytes,
            reserved_bytes: self.reserved_bytes + other.reserved_bytes,
        }
    }
}

pub fn run(global: &Global, client: &Client, names: &[String]) -> Result<(), CliError> {
    let volumes = chosen(client.volumes(0)?.volumes, names)?;
    let addresses = native_addresses(client, &client.status(0)?);
    if addresses.is_empty() && !volumes.is_empty() {
        return Err(CliError::failed("no node is up that could be asked; see `coquina node list`"));
    }
    let progress = Progress::new("volumes");
    let all_bytes: u64 = volumes.iter().map(|volume| volume.size_bytes).fold(0, u64::saturating_add);
    let mut before_bytes = 0_u64;
    let mut usages = Usages { volumes: Vec::with_capacity(volumes.len()), drives_bytes: 0 };
    for volume in volumes {
        let failed = |error: ClientError| {
            CliError::failed(format!("cannot ask about volume {:?}: {error}", volume.name))
        };
        let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
        let told = |done_bytes: u64| {
            let done_bytes = before_bytes.saturating_add(done_bytes);
            progress.set(
                &volume.name,
                done_bytes as f64 / all_bytes.max(1) as f64,
                format_size_bytes(done_bytes),
            );
        };
        let asked = Volume::open(&addresses, &volume.name, &options).and_then(|opened| {
            let size_bytes = opened.size_bytes();
            let found = in_pieces(size_bytes, |at, length| find(&opened, at, length), told)?;
            Ok((size_bytes, found))
        });
        before_bytes = before_bytes.saturating_add(volume.size_bytes);
        let (size_bytes, found) = match asked {
            // Of all volumes one may be removed meanwhile; what is asked for by name has to be there.
            Err(_) if names.is_empty() && is_gone(&client.volumes(0)?.volumes, &volume) => continue,
            asked => asked.map_err(failed)?,
        };
        let drives_bytes = (found.data_bytes + found.reserved_bytes).saturating_mul(volume.copies.into());
        usages.drives_bytes = usages.drives_bytes.saturating_add(drives_bytes);
        usages.volumes.push(Usage {
            name: volume.name,
            pool: volume.pool,
            copies: volume.copies,
            size_bytes,
            data_bytes: found.data_bytes,
            reserved_bytes: found.reserved_bytes,
            drives_bytes,
        });
    }
    drop(progress);
    if global.json { print_json(&usages) } else { print(&text(&usages)) }
}

/// Whether a volume is not there any more, or is being removed.
fn is_gone(volumes: &[api::Volume], volume: &api::Volume) -> bool {
    !volumes.iter().any(|one| one.id == volume.id && one.state == api::VolumeState::Active)
}

/// The volumes that are named, in this order, or all; those that are being removed cannot be asked about.
fn chosen(volumes: Vec<api::Volume>, names: &[String]) -> Result<Vec<api::Volume>, CliError> {
    let is_active = |volume: &api::Volume| volume.state == api::VolumeState::Active;
    if names.is_empty() {
        return Ok(volumes.into_iter().filter(is_active).collect());
    }
    let named = |name: &String| {
        let found = volumes.iter().find(|volume| volume.name == *name);
        let volume = found.ok_or_else(|| {
            let nearest = Nearest::of(name, volumes.iter().map(|volume| volume.name.as_str()));
            CliError::failed(format!("there is no volume {name:?}{nearest}; `coquina volume list` shows all"))
        })?;
        if is_active(volume) {
            return Ok(volume.clone());
        }
        Err(CliError::failed(format!("volume {name:?} is being removed")))
    };
    names.iter().map(named).collect()
}

/// What a range consists of.
fn find(volume: &Volume, offset_bytes: u64, length_bytes: u64) -> Result<Found, ClientError> {
    let mut found = Found::default();
    for extent in volume.map(offset_bytes, length_bytes)? {
        let bytes = u64::from(extent.length_bytes);
        match extent.kind {
            ExtentKind::Data => found.data_bytes += bytes,
            ExtentKind::Zeroes => found.reserved_bytes += bytes,
            ExtentKind::Hole => {}
        }
    }
    Ok(found)
}

/// Asks for the whole of `size_bytes` in pieces, some at the same time; `told` hears how many bytes are done.
fn in_pieces(
    size_bytes: u64,
    find: impl Fn(u64, u64) -> Result<Found, ClientError> + Sync,
    told: impl Fn(u64) + Sync,
) -> Result<Found, ClientError> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let result = Mutex::new(Ok(Found::default()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed).saturating_mul(PIECE_BYTES);
            if at >= size_bytes {
                return;
            }
            let length = PIECE_BYTES.min(size_bytes - at);
            let found = find(at, length);
            let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
            match (&*result, found) {
                (Ok(before), Ok(found)) => *result = Ok(*before + found),
                // Nobody needs the rest.
                (Err(_), _) => return,
                (Ok(_), Err(error)) => *result = Err(error),
            }
            drop(result);
            told(done.fetch_add(length, Ordering::Relaxed) + length);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..CALLS {
            scope.spawn(work);
        }
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn text(usages: &Usages) -> String {
    if usages.volumes.is_empty() {
        return "no volumes; make one with `coquina volume create NAME --size SIZE`\n".to_owned();
    }
    let mut table = output::table(&["NAME", "POOL", "COPIES", "SIZE", "WRITTEN", "RESERVED", "ON DRIVES"], 2);
    for usage in &usages.volumes {
        table.add_row([
            usage.name.clone(),
            usage.pool.clone(),
            usage.copies.to_string(),
            format_size_bytes(usage.size_bytes),
            format_size_bytes(usage.data_bytes),
            format_size_bytes(usage.reserved_bytes),
            format_size_bytes(usage.drives_bytes),
        ]);
    }
    if usages.volumes.len() > 1 {
        let mut row = vec![String::new(); 7];
        row[0] = "all".to_owned();
        row[6] = format_size_bytes(usages.drives_bytes);
        table.add_row(row);
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_there_is_not_is_told_with_the_one_that_may_be_meant() {
        let error = chosen(Vec::new(), &["disk".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "there is no volume \"disk\"; `coquina volume list` shows all");
        assert!(chosen(Vec::new(), &[]).unwrap().is_empty());
    }

    #[test]
    fn each_byte_is_asked_for_once() {
        let asked = Mutex::new(Vec::new());
        let size_bytes = 5 * PIECE_BYTES + 4096;
        let find = |at: u64, length: u64| {
            asked.lock().unwrap().push((at, length));
            Ok(Found { data_bytes: length, reserved_bytes: 1 })
        };
        let told_bytes = AtomicU64::new(0);
        let told = |bytes| {
            told_bytes.fetch_max(bytes, Ordering::Relaxed);
        };
        let found = in_pieces(size_bytes, find, told);
        assert_eq!(found.unwrap(), Found { data_bytes: size_bytes, reserved_bytes: 6 });
        let mut asked = asked.into_inner().unwrap();
        asked.sort_unstable();
        let pieces = (0..6).map(|piece| (piece * PIECE_BYTES, if piece < 5 { PIECE_BYTES } else { 4096 }));
        assert_eq!(asked, pieces.collect::<Vec<_>>());
        assert_eq!(told_bytes.into_inner(), size_bytes);
    }

    #[test]
    fn what_cannot_be_asked_for_is_told_and_nothing_counted() {
        let find = |at: u64, _| {
            if at == 2 * PIECE_BYTES {
                Err(ClientError::Local("broken".to_owned()))
            } else {
                Ok(Found::default())
            }
        };
        let found = in_pieces(1 << 40, find, |_| {});
        assert!(matches!(found, Err(ClientError::Local(text)) if text == "broken"));
        assert_eq!(in_pieces(0, |_, _| unreachable!(), |_| {}).unwrap(), Found::default());
    }
}
