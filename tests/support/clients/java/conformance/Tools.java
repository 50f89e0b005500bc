package conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after another in this JVM, which is much quicker than a JVM for each. A line of standard
 * input is {"main", "args", "stdin"}; its answer is a line {"exit_code", "stdout", "stderr"}.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Thrown where a tool would end the process. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private static Integer ended;

    public static void main(String[] args) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        Exit.Procedure end = (code, message) -> {
            if (ended == null) ended = code; // a tool may catch what we throw, and exit once more
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(run(JSON.readTree(line)));
            answers.flush();
        }
        System.exit(0);
    }

    private static String run(JsonNode order) throws Exception {
        ByteArrayOutputStream stdout = new ByteArrayOutputStream();
        ByteArrayOutputStream stderr = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(order.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(stdout, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(stderr, true, StandardCharsets.UTF_8));
        ended = null;
        String[] args = JSON.convertValue(order.get("args"), String[].class);
        int exitCode = 0;
        try {
            Class.forName(order.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Ended)) {
                raised.getCause().printStackTrace();
                exitCode = 1;
            }
        }
        return JSON.createObjectNode().put("exit_code", ended == null ? exitCode : ended)
                .put("stdout", stdout.toString(StandardCharsets.UTF_8)).put("stderr", stderr.toString(StandardCharsets.UTF_8)).toString();
    }
}
