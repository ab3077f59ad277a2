//! etcd with users, and with certificates.

use std::fs;
use std::time::{Duration, Instant};

use coquina_store::{Access, EtcdOptions, EtcdStore, Store, StoreError, Tls};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::io::AsyncReadExt;

use crate::block_on;
use crate::conformance::{next, set};
use crate::etcd::Cluster;
use crate::proxy::{Mode, Proxy};

fn password(user: &str, password: &str) -> Access {
    Access::Password { user: user.to_owned(), password: password.to_owned() }
}

#[test]
fn users_are_asked_for_and_their_tokens_renewed() {
    // Tokens that live for a second or two have to be fetched again.
    let Some(mut cluster) = Cluster::start(1, &["--auth-token-ttl", "1"]) else { return };
    let early = {
        let mut options = cluster.options();
        options.access = password("root", "secret");
        EtcdStore::new(options).unwrap()
    };
    block_on(set(&early, "/coquina/early", "a password before it is wanted"));
    for arguments in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "coquina:shell"],
        &["role", "add", "coquina"],
        &["role", "grant-permission", "coquina", "readwrite", "--prefix=true", "/coquina/"],
        &["user", "grant-role", "coquina", "coquina"],
        &["auth", "enable"],
    ] {
        let output = cluster.etcdctl(arguments);
        assert!(!output.contains("Error"), "{arguments:?}: {output}");
    }
    let store = |access: Access| {
        let mut options = cluster.options();
        options.access = access;
        EtcdStore::new(options).unwrap()
    };
    let good = store(password("coquina", "shell"));
    block_on(async {
        for access in [Access::Open, password("coquina", "wrong"), password("nobody", "x")] {
            let error = store(access.clone()).read(b"/coquina/").await.unwrap_err();
            assert!(matches!(error, StoreError::AuthRefused { .. }), "{access:?}: {error:?}");
            assert!(error.to_string().contains("check the user"), "{error}");
            let error = store(access).compare_and_set(b"/coquina/a", 0, None, None).await.unwrap_err();
            assert!(matches!(error, StoreError::AuthRefused { .. }), "{error:?}");
        }
        // Who was there before is asked now, and has the password ready.
        set(&early, "/coquina/early", "again").await;

        let first = set(&good, "/coquina/a", "1").await;
        let mut watch = good.watch(b"/coquina/", first).unwrap();
        assert_eq!(next(&mut watch).await.revision, first);
        let error = good.read(b"/other/").await.unwrap_err();
        assert!(matches!(error, StoreError::AuthRefused { .. }), "{error:?}");
        let error = good.compare_and_set(b"/other/a", 0, Some(b"x".to_vec()), None).await.unwrap_err();
        assert!(matches!(error, StoreError::AuthRefused { .. }), "{error:?}");
        let mut forbidden = good.watch(b"/other/", 1).unwrap();
        assert!(matches!(forbidden.next().await, Some(Err(StoreError::AuthRefused { .. }))));

        tokio::time::sleep(Duration::from_secs(4)).await;
        let second = set(&good, "/coquina/a", "2").await;
        let lease = good.lease_grant(5).await.unwrap();
        assert_eq!(next(&mut watch).await.revision, second);
        tokio::time::sleep(Duration::from_secs(4)).await;
        good.lease_keep_alive(lease.id).await.unwrap();
        let mut late = good.watch(b"/coquina/", second).unwrap();
        assert_eq!(next(&mut late).await.revision, second);
    });
    // etcd forgets its tokens when it restarts.
    cluster.kill(0);
    cluster.restart(0);
    block_on(async {
        let begin = Instant::now();
        while let Err(error) = good.read(b"/coquina/").await {
            assert!(error.is_passing() && begin.elapsed() < Duration::from_secs(20), "{error:?}");
        }
        set(&good, "/coquina/a", "3").await;
    });
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (certificate, key) = authority.sign(&["127.0.0.1", "etcd.test"]);
    let (ca, certificate, key) =
        (write("ca.pem", &authority.pem), write("server.pem", &certificate), write("server.key", &key));
    let extra =
        ["--trusted-ca-file", &ca, "--cert-file", &certificate, "--key-file", &key, "--client-cert-auth"];
    let Some(cluster) = Cluster::start_with(1, &extra, "https") else { return };
    let client = |(certificate, key): (String, String)| Some((certificate.into_bytes(), key.into_bytes()));
    let tls = |ca: &str, client| Tls { ca_pem: ca.into(), client_pem: client, server_name: None };
    let store = |tls: Tls| {
        let mut options = cluster.options();
        options.tls = Some(tls);
        EtcdStore::new(options).unwrap()
    };
    block_on(async {
        let good = store(tls(&authority.pem, client(authority.sign(&["client"]))));
        let begin = Instant::now();
        while let Err(error) = good.read(b"/").await {
            assert!(begin.elapsed() < Duration::from_secs(20), "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let first = set(&good, "/a", "1").await;
        let mut watch = good.watch(b"/", first).unwrap();
        assert_eq!(next(&mut watch).await.revision, first);
        let named = Tls {
            server_name: Some("etcd.test".to_owned()),
            ..tls(&authority.pem, client(authority.sign(&["client"])))
        };
        assert!(store(named.clone()).read(b"/").await.is_ok());

        let misnamed = Tls { server_name: Some("other.test".to_owned()), ..named };
        let wrong = [
            tls(&stranger.pem, client(authority.sign(&["client"]))),
            tls(&authority.pem, None),
            tls(&authority.pem, client(stranger.sign(&["client"]))),
            misnamed,
        ];
        for (index, wrong) in wrong.into_iter().enumerate() {
            let store = store(wrong);
            // That etcd wants another certificate comes after the handshake, and may be lost with the connection.
            let explained = |error: &StoreError| match error {
                StoreError::Tls { .. } => error.to_string().contains("check that the CA file"),
                StoreError::Unreachable { .. } => error.to_string().contains("may want a client certificate"),
                _ => false,
            };
            let error = store.read(b"/").await.unwrap_err();
            println!("{index}: {error}");
            assert!(explained(&error), "{index}: {error:?}");
            let error = store.compare_and_set(b"/a", 0, None, None).await.unwrap_err();
            assert!(explained(&error), "{index}: {error:?}");
        }
        let mut options = cluster.options();
        options.endpoints = vec![format!("http://{}", cluster.address(0))];
        let error = EtcdStore::new(options).unwrap().read(b"/").await.unwrap_err();
        println!("plain to TLS: {error}");
        assert!(matches!(error, StoreError::Unreachable { .. } | StoreError::Slow { .. }), "{error:?}");
    });
    let (certificate, key) = authority.sign(&["client"]);
    for wrong in [
        tls("nonsense", None),
        tls("", None),
        tls(&key, None),
        tls(&authority.pem, client((key.clone(), key.clone()))),
        tls(&authority.pem, client((certificate.clone(), certificate.clone()))),
        tls(&format!("{}nonsense", authority.pem.replace("MII", "M!!")), None),
    ] {
        let mut options = cluster.options();
        options.tls = Some(wrong);
        let error = EtcdStore::new(options).err().expect("it is refused");
        assert!(matches!(error, StoreError::Tls { .. }), "{error:?}");
    }
}

/// As a member does that is being stopped, or a balancer in front of members none of which is there. It was taken for a wrong
/// certificate, which ended leases, and starts of nodes.
#[test]
fn a_connection_that_ends_in_the_handshake_is_tried_again() {
    block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut options = EtcdOptions::new(vec![format!("https://{}", listener.local_addr().unwrap())]);
        let hangs_up = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.read(&mut [0; 4096]).await;
            }
        });
        let ca_pem = Authority::new().pem.into();
        options.tls = Some(Tls { ca_pem, client_pem: None, server_name: None });
        let store = EtcdStore::new(options).unwrap();
        let error = store.read(b"/").await.unwrap_err();
        assert!(error.is_passing(), "{error:?}");
        assert!(error.to_string().contains("handshake"), "{error}");
        let error = store.compare_and_set(b"/a", 0, None, None).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "nothing was sent: {error:?}");
        hangs_up.abort();
    });
}

/// It was asked again and again, since the others were not thought of.
#[test]
fn a_member_that_comes_back_without_its_certificate_is_left_for_another() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (certificate, key) = authority.sign(&["127.0.0.1"]);
    let (certificate, key) = (write("server.pem", &certificate), write("server.key", &key));
    let extra = ["--cert-file", &certificate, "--key-file", &key];
    let Some(cluster) = Cluster::start_with(1, &extra, "https") else { return };
    block_on(async {
        let mut options = cluster.options();
        options.tls = Some(Tls { ca_pem: authority.pem.into(), client_pem: None, server_name: None });
        let direct = EtcdStore::new(options.clone()).unwrap();
        let begin = Instant::now();
        while let Err(error) = direct.read(b"/").await {
            assert!(begin.elapsed() < Duration::from_secs(20), "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let proxy = Proxy::start(cluster.address(0)).await;
        options.endpoints.insert(0, proxy.endpoint.replace("http:", "https:"));
        let store = EtcdStore::new(options).unwrap();
        let lease = store.lease_grant(60).await.unwrap().id;
        proxy.set(Mode::Plain);
        // The end of the connection is seen before anything is asked.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..3 {
            store.lease_keep_alive(lease).await.unwrap();
            store.read(b"/").await.unwrap();
        }
    });
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?} {:?}", password("me", "secret"), Access::Token("secret".to_owned()));
    assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
}
