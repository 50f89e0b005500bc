package conformance;

import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/** What a scenario claims. Each failure names the claim and what was found instead. */
final class Expect {
    private Expect() {}

    interface Condition {
        boolean holds() throws Exception;
    }

    static void that(boolean holds, String claim) {
        if (!holds) throw new AssertionError("does not hold: " + claim);
    }

    static void same(Object expected, Object found, String what) {
        if (!Objects.deepEquals(expected, found)) {
            throw new AssertionError(what + ": expected " + shown(expected) + ", found " + shown(found));
        }
    }

    /** The error must be of this class, and not merely a subclass's cousin: retriable timeouts are no refusal. */
    static <E extends Throwable> E refused(Class<E> error, Callable<?> call) throws Exception {
        Object answer;
        try {
            answer = call.call();
        } catch (Throwable raised) {
            Throwable cause = raised instanceof ExecutionException ? raised.getCause() : raised;
            if (error.isInstance(cause)) return error.cast(cause);
            throw new AssertionError("expected " + error.getSimpleName() + ", found " + cause, cause);
        }
        throw new AssertionError("expected " + error.getSimpleName() + ", found an answer: " + answer);
    }

    static void eventually(String claim, Condition condition) throws Exception {
        long until = System.nanoTime() + 60_000_000_000L;
        while (!condition.holds()) {
            if (System.nanoTime() > until) throw new AssertionError("did not come to hold in 60 s: " + claim);
            Thread.sleep(20);
        }
    }

    private static String shown(Object value) {
        if (value instanceof byte[] bytes) {
            return bytes.length + " bytes " + Arrays.toString(bytes.length > 40 ? Arrays.copyOf(bytes, 40) : bytes);
        }
        return String.valueOf(value);
    }
}
