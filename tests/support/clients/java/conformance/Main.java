package conformance;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs the scenarios named on standard input (one a line), several at a time in this one JVM, and prints one JSON line
 * for each: {"name", "outcome": "passed" | "failed" | "skipped", "detail", "ms"}. Arguments: bootstrap
 * address, broker kind, file of record shapes.
 */
public final class Main {
    private static final int AT_A_TIME = 8;
    private static final List<Class<?>> SUITES =
            List.of(Groups.class, Members.class, Consuming.class, Producing.class, Positions.class, Topics.class, Offsets.class, Refusals.class);

    public static void main(String[] args) throws Exception {
        Set<String> wanted = new TreeSet<>();
        new java.io.BufferedReader(new java.io.InputStreamReader(System.in)).lines().forEach(wanted::add);
        int unknown;
        try (World world = new World(args[0], args[1], Path.of(args[2]))) {
            List<Callable<Void>> runs = new ArrayList<>();
            for (Class<?> suite : SUITES) {
                Method[] methods = suite.getDeclaredMethods();
                java.util.Arrays.sort(methods, Comparator.comparing(Method::getName));
                for (Method method : methods) {
                    Scenario scenario = method.getAnnotation(Scenario.class);
                    if (scenario == null) continue;
                    if (scenario.value().length == 0) {
                        add(runs, wanted, method.getName(), () -> method.invoke(null, world));
                    }
                    for (String value : scenario.value()) {
                        add(runs, wanted, method.getName() + "[" + value + "]", () -> method.invoke(null, world, value));
                    }
                }
            }
            unknown = wanted.size() - runs.size();
            ExecutorService pool = Executors.newFixedThreadPool(AT_A_TIME);
            pool.invokeAll(runs);
            pool.shutdown();
            pool.awaitTermination(1, TimeUnit.MINUTES);
        }
        System.exit(unknown == 0 ? 0 : 2);
    }

    private static void add(List<Callable<Void>> runs, Set<String> wanted, String name, Callable<Object> body) {
        if (!wanted.contains(name)) return;
        runs.add(() -> {
            long began = System.nanoTime();
            String outcome = "passed";
            String detail = "";
            try {
                body.call();
            } catch (InvocationTargetException failure) {
                Throwable cause = failure.getCause();
                outcome = cause instanceof Skipped ? "skipped" : "failed";
                detail = cause instanceof Skipped ? cause.getMessage() : trace(cause);
            }
            long ms = (System.nanoTime() - began) / 1_000_000;
            print("{\"name\":" + quoted(name) + ",\"outcome\":" + quoted(outcome) + ",\"detail\":" + quoted(detail) + ",\"ms\":" + ms + "}");
            return null;
        });
    }

    static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') quoted.append('\\').append(letter);
            else if (letter < ' ' || letter > '~') quoted.append(String.format("\\u%04x", (int) letter));
            else quoted.append(letter);
        }
        return quoted.append('"').toString();
    }

    private static String trace(Throwable cause) {
        StringWriter text = new StringWriter();
        cause.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
