//! The store that keeps the cluster's map: etcd, or the one that `coquina up` serves to its nodes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use coquina_store::{
    Access, EmbeddedStore, EtcdOptions, EtcdStore, Store, StoreServer, Tls, create_token, read_token,
};

use crate::arguments::StoreArguments;
use crate::error::CliError;

/// In the folder of a served store: where it is served.
const ADDRESS_FILE_NAME: &str = "address";
/// A secret in a file is not longer.
const SECRET_BYTES_MAX: usize = 4096;

/// The store that the options name. Connects when first asked for something.
pub fn connect(arguments: &StoreArguments) -> Result<Arc<dyn Store>, CliError> {
    let options = match &arguments.store_folder {
        Some(folder) => served_options(folder)?,
        None => etcd_options(arguments)?,
    };
    let store = EtcdStore::new(options).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(Arc::new(store))
}

fn served_options(folder: &Path) -> Result<EtcdOptions, CliError> {
    let address = read_text(&folder.join(ADDRESS_FILE_NAME))?;
    let token = read_token(folder).map_err(|error| CliError::failed(error.to_string()))?;
    Ok(EtcdOptions { access: Access::Token(token), ..EtcdOptions::new(vec![address]) })
}

fn etcd_options(arguments: &StoreArguments) -> Result<EtcdOptions, CliError> {
    let mut options = EtcdOptions::new(arguments.etcd.clone());
    if let Some((user, file)) = arguments.etcd_user.as_ref().zip(arguments.etcd_password_file.as_ref()) {
        options.access = Access::Password { user: user.clone(), password: read_text(file)? };
    }
    if let Some(file) = &arguments.etcd_ca {
        let mut tls = Tls { ca_pem: read(file)?, ..Tls::default() };
        if let Some((certificate, key)) = arguments.etcd_cert.as_ref().zip(arguments.etcd_key.as_ref()) {
            tls.client_pem = Some((read(certificate)?, read(key)?));
        }
        options.tls = Some(tls);
    }
    Ok(options)
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| CliError::io("read", path, &error))
}

/// The text of a file without what surrounds it.
fn read_text(path: &Path) -> Result<String, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| CliError::io("read", path, &error))?;
    let text = text.trim();
    if text.is_empty() || text.len() > SECRET_BYTES_MAX {
        return Err(CliError::failed(format!(
            "{} does not hold what it should: one line of text",
            path.display()
        )));
    }
    Ok(text.to_owned())
}

/// A store that is served to the nodes of this host, by a thread of its own.
pub struct Served {
    runtime: tokio::runtime::Runtime,
    server: StoreServer,
}

impl Served {
    /// Serves a store on the loopback to those who can read its folder.
    pub fn start(store: EmbeddedStore, folder: &Path) -> Result<Served, CliError> {
        let failed = |error: coquina_store::StoreError| CliError::failed(error.to_string());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("store")
            .enable_all()
            .build()
            .map_err(|error| CliError::failed(format!("cannot start a thread: {error}")))?;
        let token = create_token(folder).map_err(failed)?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = runtime.block_on(StoreServer::start(store, address, Some(token))).map_err(failed)?;
        let path = folder.join(ADDRESS_FILE_NAME);
        std::fs::write(&path, server.endpoint() + "\n")
            .map_err(|error| CliError::io("write", &path, &error))?;
        Ok(Served { runtime, server })
    }

    /// Stops serving, when nobody is connected any more, or only who says nothing.
    pub fn stop(self) {
        self.runtime.block_on(self.server.stop());
    }
}
