/**
 * Records why there is no connection. The libraries emit the reason as an event, but reject commands with less, or not
 * at all.
 */

import { now } from "./clock.js";
import { isDenied, isReply, Trouble } from "./replies.js";

/** How long an error of a connection counts as the cause of requests that get no connection. */
export const RECENT_MS = 5000;

/** There is no connection or no reply yet, and nobody has reported why. An earlier error of the same wait says more. */
export class UnexplainedError extends Error {}

/** The error of a request without a reply in time. The last request of a wait may have had only a moment. */
export const late = (): Error => new UnexplainedError("No reply in time");

/** The errors of a client's connections. */
export class Failures {
  private latest: { error: unknown; at: number } | undefined;
  private readonly denials = new Set<(trouble: Trouble) => void>();

  /** `address`: that of the node, for errors that do not name it. */
  record(error: unknown, address?: string): void {
    const inner = innermost(error);
    const isNamed = address === undefined || !(inner instanceof Error) || inner.message.includes(address);
    const latest = this.latest?.error;
    if (!isNamed) {
      this.latest = { error: new Error(`${address}: ${inner.message}`, { cause: inner }), at: now() };
    } else if (!(latest instanceof Error) || latest.cause !== inner) {
      this.latest = { error: inner, at: now() };
    }
    if (isDenied(error)) for (const callback of [...this.denials]) callback(new Trouble(error, "unsent"));
  }

  /** The connection is back. */
  clear(): void {
    this.latest = undefined;
  }

  /** undefined: there was no recent error. */
  get recent(): unknown {
    return this.latest !== undefined && now() - this.latest.at < RECENT_MS ? this.latest.error : undefined;
  }

  /**
   * Calls back when the server refuses the user, because waiting longer cannot help. Returns a function that
   * unsubscribes.
   */
  onDenial(callback: (trouble: Trouble) => void): () => void {
    this.denials.add(callback);
    return () => void this.denials.delete(callback);
  }

  /** Limits how long a library waits for a connection. Rejects with `Trouble`. */
  async inTime<T>(ms: number, promise: Promise<T>, otherwise = "Not connected in time"): Promise<T> {
    promise.catch(() => undefined);
    let end = (): void => undefined;
    const late = new Promise<never>((_resolve, reject) => {
      const timer = setTimeout(() => reject(new Trouble(this.recent ?? new UnexplainedError(otherwise), "unsent")), ms);
      const off = this.onDenial(reject);
      end = () => (clearTimeout(timer), off());
    });
    try {
      return await Promise.race([promise, late]);
    } catch (error) {
      if (error instanceof Trouble) throw error;
      throw isReply(error) ? new Trouble(error, "refused") : new Trouble(this.recent ?? error, "unsent");
    } finally {
      end();
    }
  }
}

/** Finds the error with the reason in one about multiple attempts or nodes. */
function innermost(error: unknown): unknown {
  const { cause, lastNodeError } = (error instanceof Error ? error : {}) as {
    cause?: unknown;
    lastNodeError?: unknown;
  };
  const inner = lastNodeError ?? cause;
  return inner instanceof Error ? innermost(inner) : error;
}

const explained = new WeakSet<Error>();

/** Adds why nothing was granted to the reason of a signal, which the caller gets unchanged. */
export function explain(reason: unknown, cause: unknown): void {
  if (!(reason instanceof Error) || cause === undefined || cause === reason) return;
  if (!explained.has(reason) && ("cause" in reason || !Object.isExtensible(reason))) return;
  explained.add(reason);
  Object.defineProperty(reason, "cause", { value: cause, configurable: true, enumerable: false, writable: true });
}
