//! A Ceph cluster: RBD images by librbd, whole objects by librados. All jobs share one connection, as the threads of one client do.
//!
//! Ceph's usual files say where the cluster is; `CEPH_CONF` names another one.

mod connection;
mod lane;
mod library;
pub(super) mod objects;
pub(super) mod rbd;
