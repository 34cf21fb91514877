package redislock;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Leaves neither a queued request nor a hold of it behind: LOCK.CANCEL, then the release, each
 * until it has run or the lease is over. In this order: a release alone could arrive just before
 * the grant.
 */
final class Withdraw extends Task<@Nullable Void> {
  private final Request request;
  private final int holds;
  private final Clock.Resend resend;
  private int done;

  Withdraw(Request request, int holds) {
    super(request.family().key());
    this.request = request;
    this.holds = holds;
    this.resend = new Clock.Resend(request.leaseMs());
  }

  @Override
  Step begin() {
    Family family = request.family();
    byte[] token = request.token();
    // A report of done work would keep the waiting callers from doing it.
    List<byte[]> words =
        switch (done) {
          case 0 -> family.cancel(token);
          case 1 -> family.release(token, holds, request.coalesce());
          // READ keeps the fence of an upgrade that was given back.
          default -> family.held(token);
        };
    return new Step.Send(words, Limits.UNDO_MS);
  }

  @Override
  Step reply(@Nullable Object reply) {
    if (done == 2) {
      Grant found = Grant.ofHeld(reply, Clock.now());
      if (found != null) {
        request.owner().fence = found.fence();
      }
    }
    return next();
  }

  private Step next() {
    done++;
    return done == (request.otherMode() ? 3 : 2) ? new Step.Done(null) : begin();
  }

  @Override
  Step trouble(Trouble trouble) {
    if (!trouble.heals()) {
      return next();
    }
    return resend.over() ? new Step.Done(null) : new Step.Sleep(resend.pause());
  }

  List<byte[]> keys() {
    return request.family().keys();
  }

  @Override
  byte[] token() {
    return request.token();
  }
}
