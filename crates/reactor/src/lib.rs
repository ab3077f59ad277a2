//! One io_uring per core for disk and network
