//! One lock: its holders, the requests that it admits, and the values that it is made of.
//!
//! | file        | question                                                   |
//! | ----------- | ---------------------------------------------------------- |
//! | `lock`      | which owners hold a lock, and which requests it admits     |
//! | `exclusive` | the holder of a mutex or reentrant mutex                   |
//! | `shared`    | the holders of a read/write lock or semaphore              |
//! | `holders`   | the table of thousands of holders                          |
//! | `slots`     | which holder of a semaphore has which slot                 |
//! | `rebuild`   | how a lock is rebuilt from a file, a dump or an effect     |
//! | `received`  | what does a replicated or loaded effect do to a lock       |
//! | `by_family` | one value for each family                                  |
//! | `claim`     | what a request can claim, and a release give back          |
//! | `outcome`   | the results of requests and releases                       |
//! | `owner`     | what is an owner                                           |
//! | `fence`     | which number does the next grant get                       |
//! | `time`      | what is a timestamp, a deadline, a lease, now              |

pub mod by_family;
pub mod claim;
pub mod exclusive;
pub mod fence;
pub mod holders;
pub mod lock;
pub mod outcome;
pub mod owner;
pub mod rebuild;
pub mod received;
pub mod shared;
pub mod slots;
pub mod time;
