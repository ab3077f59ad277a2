//! A TCP proxy that can fall silent or become slow.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Forward,
    /// Takes everything and passes nothing on: what a lost route looks like.
    Silent,
    /// Passes requests on, and no answers.
    Mute,
    /// Passes answers on late.
    Late(Duration),
    /// Cuts all connections, and answers new ones as nothing with TLS does.
    Plain,
}

pub struct Proxy {
    pub endpoint: String,
    mode: watch::Sender<Mode>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    pub async fn start(target: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (mode, modes) = watch::channel(Mode::Forward);
        let target = Arc::new(target);
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                if *modes.borrow() == Mode::Plain {
                    let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                    continue;
                }
                let (modes, target) = (modes.clone(), target.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(target.as_str()).await else { return };
                    client.set_nodelay(true).unwrap();
                    server.set_nodelay(true).unwrap();
                    let (client_read, client_write) = client.into_split();
                    let (server_read, server_write) = server.into_split();
                    tokio::join!(
                        copy(client_read, server_write, modes.clone(), false),
                        copy(server_read, client_write, modes, true)
                    );
                });
            }
        });
        Proxy { endpoint, mode, accepting }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
    is_answer: bool,
) {
    let mut buffer = vec![0; 64 << 10];
    let mut cuts = modes.clone();
    loop {
        let received = tokio::select! {
            received = from.read(&mut buffer) => received,
            _ = cuts.wait_for(|mode| *mode == Mode::Plain) => return,
        };
        let Ok(length @ 1..) = received else { return };
        let mode = *modes.borrow();
        let holds_back = |mode: &Mode| *mode == Mode::Silent || (*mode == Mode::Mute && is_answer);
        if holds_back(&mode) {
            // What was held back arrives when the route is there again, as with TCP.
            if modes.wait_for(|mode| !holds_back(mode)).await.is_err() {
                return;
            }
        } else if let Mode::Late(delay) = mode
            && is_answer
        {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
