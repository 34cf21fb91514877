//! Integration tests: real servers with the module loaded, real connections, one binary.
//!
//! Each module covers one subject, and each test is named after the promise it checks. The promises are in README.md,
//! docs/ and the commands' own documentation; the tests do not depend on the module's internals.

mod adopt;
mod churn;
mod clock;
mod cluster;
mod deadlock;
mod disorder;
mod docs;
mod endings;
mod errors;
mod exec;
mod fences;
mod grace;
mod hints;
mod hostile;
mod info;
mod inspecting;
mod iterations;
mod leaving;
mod loading;
mod lock_types;
mod metrics;
mod migrate_slots;
mod mlock;
mod model;
mod moving;
mod notify;
mod observing;
mod other_modules;
mod package;
mod pages;
mod permissions;
mod predecessors;
mod random;
mod readme;
mod reference;
mod refused_writes;
mod removal;
mod replication;
mod reshard;
mod rewriting;
mod runbook;
mod safety;
mod sessions;
mod sizing;
mod stable;
mod stalls;
mod stored;
mod support;
mod tls;
mod tokens;
mod undelivered;
mod waiting;
mod writing_a_client;
