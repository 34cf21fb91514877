//! What the rules are tried with.
//!
//! | file        | question                        |
//! | ----------- | ------------------------------- |
//! | `steps`     | what can happen                 |
//! | `checks`    | what must hold after every step |
//! | `simulator` | does it hold under any schedule |

mod checks;
mod simulator;
mod steps;
