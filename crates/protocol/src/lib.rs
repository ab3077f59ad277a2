//! The native wire protocol: fixed headers and their codec, without sockets
