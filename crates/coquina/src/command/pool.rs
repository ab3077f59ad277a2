//! `coquina pool ...`

use std::time::{Duration, Instant};

use coquina_base::{check_name, format_size_bytes};
use coquina_control::api;

use super::connect::client;
use crate::arguments::{Global, Pool};
use crate::error::CliError;
use crate::output::{self, print, print_json};

/// How long it is waited until a pool is gone.
const REMOVED_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

pub fn run(global: &Global, command: &Pool) -> Result<(), CliError> {
    match command {
        Pool::Create { name, copies, min_copies, domain, groups } => {
            check_name(name).map_err(|error| CliError::usage(error.to_string()))?;
            if min_copies.is_some_and(|least| least > *copies) {
                return Err(CliError::usage("--min-copies is at most --copies"));
            }
            if groups.is_some_and(|groups| !groups.is_power_of_two()) {
                return Err(CliError::usage("--groups is a power of two, such as 64 or 256"));
            }
            let request = api::CreatePool {
                name: name.clone(),
                copies: *copies,
                min_copies: *min_copies,
                domain: domain.clone(),
                groups: *groups,
            };
            show(global, &client(global)?.create_pool(&request)?, "created")
        }
        Pool::List => {
            let list = client(global)?.pools()?;
            if global.json { print_json(&list) } else { print(&list_text(&list.pools)) }
        }
        Pool::Remove { name } => remove(global, name),
    }
}

/// Its name is free only when the process that leads has deleted its groups.
fn remove(global: &Global, name: &str) -> Result<(), CliError> {
    let client = client(global)?;
    let pool = client.remove_pool(name)?;
    let begin = Instant::now();
    while client.pools()?.pools.iter().any(|other| other.id == pool.id) {
        if begin.elapsed() >= REMOVED_WITHIN {
            output::tell(format_args!(
                "pool {name} is still being removed: its name is free when `coquina pool list` does not show it any more"
            ));
            return show(global, &pool, "removing");
        }
        std::thread::sleep(POLL);
    }
    show(global, &pool, "removed")
}

fn show(global: &Global, pool: &api::Pool, done: &str) -> Result<(), CliError> {
    if global.json {
        return print_json(pool);
    }
    print(&format!(
        "{done} pool {}: {} copies on different {}s, at least {}, {} placement groups\n",
        pool.name, pool.copies, pool.domain, pool.min_copies, pool.groups
    ))
}

fn state_text(state: api::PoolState) -> &'static str {
    match state {
        api::PoolState::Creating => "creating",
        api::PoolState::Active => "active",
        api::PoolState::Removing => "removing",
    }
}

fn list_text(pools: &[api::Pool]) -> String {
    if pools.is_empty() {
        return "no pools; the first volume makes one, or `coquina pool create NAME --copies N`\n".to_owned();
    }
    let header = [
        "NAME",
        "STATE",
        "COPIES",
        "AT LEAST",
        "APART BY",
        "GROUPS",
        "CLEAN",
        "VOLUMES",
        "SIZES",
        "MAX AVAIL",
    ];
    let mut table = output::table(&header, 2);
    for pool in pools {
        table.add_row([
            pool.name.clone(),
            state_text(pool.state).to_owned(),
            pool.copies.to_string(),
            pool.min_copies.to_string(),
            pool.domain.clone(),
            pool.groups.to_string(),
            pool.states.map_or("-".to_owned(), |states| states.active_clean.to_string()),
            pool.volumes.to_string(),
            format_size_bytes(pool.provisioned_bytes),
            pool.available_bytes.map_or("-".to_owned(), format_size_bytes),
        ]);
    }
    table.trim_fmt() + "\n"
}
