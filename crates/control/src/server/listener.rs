//! A listener that limits how many connections are open and for how long they may be silent.
//!
//! Every node keeps one connection to the process that leads, for its heartbeats, and none of them may be kept out for long by
//! what others leave open. So there is room for far more than the nodes that clusters are tested with, and a connection on
//! which nothing is asked ends soon; one with heartbeats is asked something several times a second.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// One for the heartbeats of each of the 500 nodes that clusters are tested with, and three times that for all else.
const CONNECTIONS_MAX: usize = 2048;
/// Longest silence while something is asked and answered. Longer than any request takes to be answered.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
/// Longest silence while nothing is asked. Longer than clients keep a connection that they do not use, so that no request meets
/// one that ends.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// Pause after a failed accept, such as with no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How long a peer may be silent.
#[derive(Clone, Copy)]
struct Patience {
    answer: Duration,
    idle: Duration,
}

pub(super) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    patience: Patience,
}

impl LimitedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        let patience = Patience { answer: ANSWER_TIME_MAX, idle: IDLE_TIME_MAX };
        LimitedListener { listener, permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)), patience }
    }
}

impl axum::serve::Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        loop {
            let Ok(permit) = self.permits.clone().acquire_owned().await else {
                // The semaphore is never closed.
                std::future::pending::<()>().await;
                continue;
            };
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let patience = self.patience;
                    let deadline = Box::pin(sleep(patience.idle));
                    return (LimitedStream { stream, deadline, patience, _permit: permit }, address);
                }
                Err(error) => {
                    tracing::debug!(%error, "accepting an HTTP connection failed");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

pub(super) struct LimitedStream {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    patience: Patience,
    _permit: OwnedSemaphorePermit,
}

impl LimitedStream {
    /// Passes on what the socket says, which may then be silent for so long; an error if it has been for too long.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
        next: Duration,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + next);
            return polled;
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        // Something is asked from now on.
        let next = self.patience.answer;
        self.watch(context, polled, next)
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        // That may have been the whole answer.
        let next = self.patience.idle;
        self.watch(context, polled, next)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush: no sign of life.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::serve::Listener;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A connection to a listener with so much patience, in milliseconds.
    async fn pair(answer_ms: u64, idle_ms: u64) -> (LimitedStream, TcpStream) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut listener = LimitedListener::new(socket);
        listener.patience =
            Patience { answer: Duration::from_millis(answer_ms), idle: Duration::from_millis(idle_ms) };
        let (accepted, connected) = tokio::join!(listener.accept(), TcpStream::connect(address));
        (accepted.0, connected.unwrap())
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    fn is_timeout(result: io::Result<usize>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[test]
    fn who_asks_nothing_is_let_go_soon_and_who_waits_for_an_answer_is_not() {
        run(async {
            let mut buffer = [0; 8];
            let (mut server, client) = pair(60_000, 50).await;
            assert!(is_timeout(server.read(&mut buffer).await), "nothing was ever asked");
            drop(client);

            let (mut server, mut client) = pair(60_000, 50).await;
            client.write_all(b"ask").await.unwrap();
            assert_eq!(server.read(&mut buffer).await.unwrap(), 3);
            let waits = tokio::time::timeout(Duration::from_millis(300), server.read(&mut buffer)).await;
            assert!(waits.is_err(), "the answer is being made");
            server.write_all(b"answer").await.unwrap();
            assert!(is_timeout(server.read(&mut buffer).await), "nothing more was asked");

            let (mut server, mut client) = pair(50, 60_000).await;
            client.write_all(b"a").await.unwrap();
            assert_eq!(server.read(&mut buffer).await.unwrap(), 1);
            assert!(is_timeout(server.read(&mut buffer).await), "the rest does not come");
        });
    }
}
