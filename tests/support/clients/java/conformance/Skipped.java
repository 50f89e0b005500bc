package conformance;

/** Thrown by a scenario that has nothing to show on this broker; the message is the reason. */
final class Skipped extends RuntimeException {
    private static final long serialVersionUID = 1;

    Skipped(String reason) {
        super(reason);
    }
}
