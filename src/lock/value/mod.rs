//! One lock: its holders, whom it admits, and the values that it is made of.
//!
//! | file        | question                                                   |
//! | ----------- | ---------------------------------------------------------- |
//! | `lock`      | who holds one lock, and whom else would it admit           |
//! | `exclusive` | the same for the one holder of a mutex                     |
//! | `shared`    | the same for the holders of a read/write lock or semaphore |
//! | `holders`   | where thousands of holders are kept                        |
//! | `slots`     | which holder of a semaphore has which slot                 |
//! | `rebuild`   | how a lock comes out of a file, a dump or an effect        |
//! | `received`  | what does an effect from elsewhere do to a lock            |
//! | `by_family` | something for each of the families                         |
//! | `claim`     | what can be asked of a lock, and given back                |
//! | `outcome`   | what a lock answers                                        |
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
