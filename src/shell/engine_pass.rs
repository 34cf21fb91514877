//! One pass of the engine: borrows the state, opens the keyspace, decides, arms the timer. Every command that decides,
//! and the timer, go through here.

use std::cell::RefMut;
use std::ffi::c_void;
use std::mem;

use command::errors::{self, ErrorReply};
use command::host::{KeyArguments, NewWaiter};
use lock::engine::lock_manager::LockManager;
use lock::engine::timers::{NextTimer, WRITE_RETRY_MS};
use lock::engine::uncontended::LazyKey;
use lock::host::Host;
use lock::key::ClientId;
use lock::value::claim::{LockRequest, ReleaseAmount};
use lock::value::outcome::{Grant, KeyError, Released};
use lock::value::time::{Instant, Now};
use redis_module::raw;

use super::background::events::RecordAllAfterPanic;
use super::background::timer::Arming;
use super::background::{events, inspections, stall, timer, write_check};
use super::clients::PassClients;
use super::clock;
use super::ffi::context::{guard, Ctx};
use super::ffi::main_thread;
use super::ffi::string::Str;
use super::ffi::time::{poke_event_loop, sleeps_past_new_timers};
use super::figures::FIGURES;
use super::keyspace::store::{Store, StoredKey};
use super::observe::{keyspace_events, report};
use super::state::{self, State};

/// The host of the engine during a command.
pub type PassHost<'a> = Host<'a, Store<'a>, PassClients<'a>>;

/// Runs the engine for a command with these keys. `opened` is the key that the engine opens first, if it is already
/// open. `waiter` is the client of the command, if it may wait.
///
/// # Errors
/// The state is in use: a command inside a callback inside a command.
pub fn of_command<'c, R>(
    ctx: Ctx<'c>,
    opened: Option<StoredKey<'c>>,
    arguments: KeyArguments<'c, Str<'c>>,
    waiter: Option<NewWaiter<'c, Str<'c>>>,
    decide: impl FnOnce(&mut LockManager, &mut PassHost<'_>) -> R,
) -> Result<R, ErrorReply> {
    let pass = MeasuredPass::of_command();
    let decided = state::borrow_at(&pass.now(), |state, now| {
        let State { manager, clients, log } = state;
        // SAFETY: the state is borrowed, so no other pass has a store.
        let keys = unsafe { Store::of_command(ctx, opened, arguments) };
        let mut host = Host {
            keys,
            clients: PassClients { ctx, arguments, clients, on_delivered: state::record_delivered, waiter },
            now,
        };
        let result = decide(manager, &mut host);
        drop(host);
        inspections::follow_command(manager);
        report::take(ctx, now, manager, clients, log);
        schedule_and_wake(manager);
        result
    });
    keyspace_events::publish(ctx);
    drop(pass);
    decided.ok_or(errors::BUSY)
}

/// The fast path of a command with one key that no request waits for and that is not observed. Only a hold that is
/// bound to a connection needs the timer. If it does not apply, it returns `None` without changing anything, and the
/// command starts over with [`of_command`].
pub struct FastPass<'c> {
    state: RefMut<'static, State>,
    key: CommandKey<'c>,
}

impl<'c> FastPass<'c> {
    /// Call it only if [`events`] allow it. `None`: the state is in use.
    #[inline(always)]
    pub fn begin(ctx: Ctx<'c>, name: Str<'c>) -> Option<FastPass<'c>> {
        Some(FastPass { state: state::borrow_fast()?, key: CommandKey { ctx, name } })
    }

    /// See [`LockManager::acquire_uncontended`].
    #[inline(always)]
    pub fn acquire(
        self,
        request: &LockRequest<'_>,
        session: Option<ClientId>,
    ) -> Result<Result<Grant, KeyError>, Option<StoredKey<'c>>> {
        match session {
            None => self.acquire_with(request, None),
            Some(client) => self.acquire_bound(request, client),
        }
    }

    /// See [`LockManager::release_uncontended`].
    #[inline(always)]
    pub fn release(self, owner: &[u8], amount: &ReleaseAmount) -> Option<Result<Released, KeyError>> {
        if self.state.manager.bindings().is_empty() {
            self.release_with(owner, amount, BindingChange::No)
        } else {
            self.release_bound(owner, amount)
        }
    }

    /// Out of line, like `release_bound`, so that a request without SESSION reserves no registers for this.
    #[inline(never)]
    fn acquire_bound(
        self,
        request: &LockRequest<'_>,
        client: ClientId,
    ) -> Result<Result<Grant, KeyError>, Option<StoredKey<'c>>> {
        let panic_guard = RecordAllAfterPanic;
        let granted = self.acquire_with(request, Some(client));
        mem::forget(panic_guard);
        granted
    }

    #[inline(never)]
    fn release_bound(self, owner: &[u8], amount: &ReleaseAmount) -> Option<Result<Released, KeyError>> {
        self.release_with(owner, amount, BindingChange::Maybe)
    }

    #[inline(always)]
    fn acquire_with(
        mut self,
        request: &LockRequest<'_>,
        session: Option<ClientId>,
    ) -> Result<Result<Grant, KeyError>, Option<StoredKey<'c>>> {
        let FastPass { key, .. } = self;
        // SAFETY: the state is borrowed, so no other pass has a key open.
        let open = || unsafe { StoredKey::of_command(key.ctx, key.name) };
        let granted = self.state.manager.acquire_uncontended(&clock::now(), key, open, request, session);
        self.end(if session.is_some() { BindingChange::Maybe } else { BindingChange::No });
        granted
    }

    #[inline(always)]
    fn release_with(
        mut self,
        owner: &[u8],
        amount: &ReleaseAmount,
        binding: BindingChange,
    ) -> Option<Result<Released, KeyError>> {
        let FastPass { key, .. } = self;
        // SAFETY: the state is borrowed, so no other pass has a key open.
        let open = || unsafe { StoredKey::of_command(key.ctx, key.name) };
        let released = self.state.manager.release_uncontended(|| clock::now().us(), key, open, owner, amount);
        self.end(binding);
        released
    }

    /// An expired key that was deleted on opening is an event; a bound hold may need the timer.
    #[inline(always)]
    fn end(&mut self, binding: BindingChange) {
        if binding == BindingChange::Maybe {
            events::set_has_waiters_or_sessions(self.state.manager.has_waiters_or_sessions());
            schedule_and_wake(&mut self.state.manager);
        } else if events::is_any() {
            wake_in_time(&self.state.manager);
        }
    }
}

/// Whether the fast path may have bound a hold to a connection or ended such a binding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BindingChange {
    No,
    Maybe,
}

#[derive(Clone, Copy)]
struct CommandKey<'c> {
    ctx: Ctx<'c>,
    name: Str<'c>,
}

impl<'c> LazyKey<'c> for CommandKey<'c> {
    #[inline(always)]
    fn name(self) -> &'c [u8] {
        self.name.bytes()
    }

    fn db(self) -> i32 {
        self.ctx.db()
    }
}

/// Accesses the state without changing a key.
///
/// # Errors
/// See [`of_command`].
pub fn with_state<R>(work: impl FnOnce(&mut State, &Now) -> R) -> Result<R, ErrorReply> {
    let result = state::borrow(|state, now| {
        let result = work(state, now);
        schedule_and_wake(&mut state.manager);
        result
    });
    result.ok_or(errors::BUSY)
}

/// The timer callback: decides without a command. If a hold ends outside the module's commands, it is processed here,
/// where the server allows writes. While the server refuses writes, the timer retries every 10 ms, because no event
/// reports the end of a pause.
///
/// # Safety
/// Only the server may call it, as the callback of the module's timer.
pub unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, _: *mut c_void) {
    timer::fired();
    let completed = guard("timer", || {
        let pass = MeasuredPass::of_timer();
        stall::record_sign_of_life();
        // SAFETY: the context of this callback.
        let Some(ctx) = (unsafe { Ctx::new(ctx) }) else { return };
        state::borrow_at(&pass.now(), |state, now| {
            let State { manager, clients, log } = state;
            // SAFETY: the state is borrowed, so no other pass has a store.
            let keys = unsafe { Store::of_timer(ctx) };
            let arguments = KeyArguments { arguments: &[], names: &[] };
            let mut host = Host {
                keys,
                clients: PassClients { ctx, arguments, clients, on_delivered: state::record_delivered, waiter: None },
                now,
            };
            // Work that does not fit into the slice stays due.
            now.begin_slice();
            inspections::inspect(manager, &mut host);
            manager.with_host(&mut host).tick();
            manager.with_host(&mut host).drain();
            let is_held_back = manager.has_due() && host.keys.was_refused();
            write_check::record_held_back(is_held_back, now.instant());
            if is_held_back {
                // Waits must still time out on time.
                let retry = now.instant().plus_ms(WRITE_RETRY_MS);
                let instant = next_timer(manager).instant.map_or(retry, |next| next.min(retry));
                timer::arm(NextTimer { instant: Some(instant), timestamp: None });
            } else {
                schedule(manager);
            }
            inspections::follow(manager);
            drop(host);
            report::take(ctx, now, manager, clients, log);
        });
        keyspace_events::publish(ctx);
        drop(pass);
    });
    if completed.is_none() {
        // After a panic, rearm the timer, because other keys must still be served.
        timer::arm(NextTimer { instant: Some(clock::instant().plus_ms(WRITE_RETRY_MS)), timestamp: None });
    }
}

/// Arms the timer for the next deadline.
fn schedule(manager: &LockManager) -> Arming {
    if manager.has_due() || events::is_any() {
        return timer::arm_now();
    }
    timer::arm(next_timer(manager))
}

/// The next deadline, including inspections.
fn next_timer(manager: &LockManager) -> NextTimer {
    let next = manager.next_timer();
    NextTimer { instant: next.instant.into_iter().chain(inspections::due()).min(), ..next }
}

/// Arms the timer after a command, and wakes the server if it might sleep for too long: a command may run just before
/// the server sleeps, or on a thread of another module while the server sleeps.
#[inline]
fn schedule_and_wake(manager: &mut LockManager) {
    if manager.take_needs_rearm() || manager.has_due() || events::is_any() {
        wake_in_time(manager);
    }
}

/// Out of line: an uncontended request has nothing to schedule, or nothing that is due sooner than before.
#[inline(never)]
fn wake_in_time(manager: &LockManager) {
    if schedule(manager) == Arming::Earlier && (sleeps_past_new_timers() || !main_thread::is_here()) {
        poke_event_loop();
    }
}

/// Measures an engine pass from creation to drop.
struct MeasuredPass {
    began_us: Option<u64>,
}

impl MeasuredPass {
    fn of_timer() -> MeasuredPass {
        MeasuredPass { began_us: Some(clock::begin_slice()) }
    }

    /// Measures a command's pass only if a request waits, a hold is bound, the delivery of a grant is pending, or
    /// events remain.
    fn of_command() -> MeasuredPass {
        let is_measured = events::has_waiters_or_sessions() || events::is_any();
        MeasuredPass { began_us: is_measured.then(clock::begin_slice) }
    }

    /// The time on which its decisions are based.
    fn now(&self) -> Now {
        self.began_us.map_or_else(clock::now, |began_us| clock::now().read_at(began_us))
    }
}

/// Ends the measurement, even after a panic.
impl Drop for MeasuredPass {
    fn drop(&mut self) {
        let Some(began_us) = self.began_us else { return };
        let now_us = clock::end_slice();
        let mut longest = FIGURES.longest_pass.borrow_mut();
        let longest_us = longest.current(Instant::from_ms(now_us / 1000));
        *longest_us = (*longest_us).max(now_us.saturating_sub(began_us));
    }
}
