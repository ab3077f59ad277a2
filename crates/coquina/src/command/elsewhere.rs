//! Asks another node of the cluster once the server does not answer any more: it may be the one that is being removed.

use std::time::{Duration, Instant};

use coquina_base::NodeId;
use coquina_control::{Client, ClientError};

use crate::error::CliError;

/// How long nobody may answer: a server that is started again, or one that takes over, needs moments.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The cluster, whoever of it answers.
pub struct Cluster {
    client: Client,
    /// Its nodes, and where they can be asked.
    nodes: Vec<(NodeId, String)>,
    silent_since: Option<Instant>,
    silence_max: Duration,
}

impl Cluster {
    /// The cluster of a server that answers now.
    pub fn of(client: Client) -> Result<Cluster, CliError> {
        let nodes = client.nodes()?.nodes.into_iter().map(|node| (node.id, node.http));
        let nodes = nodes.filter(|(_, http)| !http.is_empty()).collect();
        Ok(Cluster { client, nodes, silent_since: None, silence_max: SILENCE_MAX })
    }

    /// The server, or who answered last instead of it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The answer of the first that has one; `None` while nobody has. An error if that has lasted for too long.
    pub fn ask<T>(
        &mut self,
        question: impl Fn(&Client) -> Result<T, ClientError>,
    ) -> Result<Option<T>, ClientError> {
        let error = match question(&self.client) {
            Err(error) if is_silence(&error) => error,
            answer => {
                self.silent_since = None;
                return answer.map(Some);
            }
        };
        for (node, address) in &self.nodes {
            let Some(client) = client_of(*node, address) else { continue };
            if let Ok(answer) = question(&client) {
                self.client = client;
                self.silent_since = None;
                return Ok(Some(answer));
            }
        }
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.silence_max { Ok(None) } else { Err(error) }
    }
}

/// A client of that very node. Seen from here its address may be that of another server: a port of this host, say.
fn client_of(node: NodeId, address: &str) -> Option<Client> {
    let client = Client::new(address).ok()?;
    client.local().is_ok_and(|local| local.node == Some(node)).then_some(client)
}

/// Whether a server is not there, or about to go. All else it has said itself.
pub fn is_silence(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Answer { .. } => true,
        ClientError::Refused { status, .. } => *status == 503,
        ClientError::Address { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use coquina_base::Id128;
    use coquina_control::api;

    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId(Id128([number; 16]))
    }

    /// Answers as a node does, so many requests; nobody is there after that.
    fn serve(listener: TcpListener, own: NodeId, others: &[(NodeId, String)], requests: usize) {
        let local = api::Local { node: Some(own), ..Default::default() };
        let one =
            |(id, http): &(NodeId, String)| api::Node { id: *id, http: http.clone(), ..Default::default() };
        let list = api::NodeList { nodes: others.iter().map(one).collect() };
        let local = serde_json::to_string(&local).expect("JSON");
        let list = serde_json::to_string(&list).expect("JSON");
        std::thread::spawn(move || {
            for _ in 0..requests {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                let first = lines.next().expect("a line").expect("a line");
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let body = if first.contains("/v1/local") { &local } else { &list };
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).expect("a client");
            }
        });
    }

    fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        (listener, address)
    }

    /// A removal was said to have failed, since the node that was asked went as it should.
    #[test]
    fn another_node_is_asked_when_the_first_is_gone_and_no_other_server_is_believed() {
        let [(first, first_at), (other, other_at), (second, second_at)] = [listen(), listen(), listen()];
        let nodes = [(node(1), first_at.clone()), (node(7), other_at), (node(2), second_at)];
        serve(first, node(1), &nodes, 2);
        serve(other, node(9), &nodes[..1], 100);
        serve(second, node(2), &nodes[2..], 3);
        let mut cluster = Cluster::of(Client::new(&first_at).expect("an address")).expect("an answer");
        let mut seen = || cluster.ask(Client::nodes).map(|list| list.map(|list| list.nodes.len()));
        assert!(matches!(seen(), Ok(Some(3))));
        assert!(matches!(seen(), Ok(Some(1))), "of the second");
        assert!(matches!(seen(), Ok(Some(1))), "and of it again");
        // Nobody is left: that may pass.
        assert!(matches!(seen(), Ok(None)));
        cluster.silence_max = Duration::ZERO;
        assert!(matches!(cluster.ask(Client::nodes), Err(ClientError::Unreachable { .. })));
    }
}
