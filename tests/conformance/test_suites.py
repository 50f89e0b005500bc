"""What foreign suites print becomes cases; what they do not finish is failed, never forgotten."""

import json

from conformance.model import Case, Outcome
from conformance.suites import SUITES, franz_go, librdkafka

from conformance import pytest_suite


def test_every_suite_has_a_name_of_its_own() -> None:
    assert len({suite.name for suite in SUITES}) == len(SUITES)


def events(*told: tuple[str, str, str]) -> list[str]:
    return [json.dumps({"Action": action, "Test": test, "Output": text}) for action, test, text in told]


def test_go_tests_with_subtests_count_by_subtest() -> None:
    lines = events(
        ("run", "TestA", ""), ("run", "TestA/x", ""), ("output", "TestA/x", "    a_test.go:1: lost\n"), ("fail", "TestA/x", ""),
        ("run", "TestA/y", ""), ("run", "TestA/y/static", ""), ("pass", "TestA/y/static", ""), ("pass", "TestA/y", ""),
        ("fail", "TestA", ""), ("skip", "TestB", ""),
    )  # fmt: skip
    assert list(franz_go.cases(lines, ["TestA", "TestB"])) == [
        Case("TestA/x", Outcome.FAILED, "a_test.go:1: lost"),
        Case("TestA/y/static", Outcome.PASSED),
        Case("TestA/y", Outcome.PASSED),
        Case("TestB", Outcome.SKIPPED),
    ]


def test_go_tests_that_a_panic_cut_off_failed() -> None:
    lines = events(("run", "TestA", ""), ("output", "TestA", "panic: boom\n"))
    assert list(franz_go.cases([*lines, "exit status 2"], ["TestA", "TestB"])) == [
        Case("TestA", Outcome.FAILED, "panic: boom"),
        Case("TestB", Outcome.FAILED, "no result within 300 s"),
    ]


def test_only_go_tests_that_lead_to_the_broker_are_chosen() -> None:
    source = """
func TestPure(t *testing.T) {
	parse()
}
func (c *consumer) etl() {
	newClient()
}
func TestGroup(t *testing.T) {
	new(consumer).etl()
}
func newClient() {
	seeds()
}
"""
    assert franz_go.reaching("seeds", [source]) == ["TestGroup"]


SUMMARY = """
|\x1b[32m 0001_multiobj                            |     PASSED |   1.234s \x1b[0m|
|\x1b[31m 0045_subscribe_update                    |     FAILED |  30.000s \x1b[0m|\x1b[31m test_x():12: late\x1b[0m
|\x1b[36m 0097_ssl_verify                          |    SKIPPED |   0.000s \x1b[0m|\x1b[36m no SSL\x1b[0m
"""


def test_librdkafkas_summary_becomes_cases() -> None:
    names = ["0001_multiobj", "0045_subscribe_update", "0097_ssl_verify", "0098_gone"]
    assert list(librdkafka.cases(SUMMARY, names)) == [
        Case("0001_multiobj", Outcome.PASSED),
        Case("0045_subscribe_update", Outcome.FAILED, "test_x():12: late"),
        Case("0097_ssl_verify", Outcome.SKIPPED, "no SSL"),
        Case(
            "0098_gone", Outcome.FAILED, "no result: " + " ".join(librdkafka._COLOR.sub("", SUMMARY).splitlines()[-3:])
        ),
    ]


def test_librdkafkas_tests_that_need_no_broker_are_left_out() -> None:
    source = """
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0028_long_topicnames,
          TEST_F_KNOWN_ISSUE),
    _TEST(0107_topic_recreate,
          0,
          TEST_BRKVER_TOPIC_ADMINAPI,
          .scenario = "noautocreate"),
    _TEST(0150_telemetry_mock, 0),
    _TEST(8000_idle, TEST_F_MANUAL),
"""
    assert librdkafka.tests(source) == [
        ("0001_multiobj", "default"),
        ("0028_long_topicnames", "default"),
        ("0107_topic_recreate", "noautocreate"),
    ]


def test_librdkafkas_subtests_are_found_in_their_source() -> None:
    source = """
static void do_test_CreateTopics(const char *what) {
        SUB_TEST_QUICK("%s", what);
}
static void
do_test_acls_count(rd_kafka_t *rk) {
}
static void do_test_DeleteTopics(const char *what,
                                 int timeout) {
        SUB_TEST();
}
"""
    assert librdkafka.parts(source) == ["do_test_CreateTopics", "do_test_DeleteTopics"]


def test_a_junit_report_becomes_cases() -> None:
    report = """<testsuites><testsuite>
      <testcase classname="tests.clients.test_java" name="test_a"/>
      <testcase classname="tests.clients.test_java" name="test_b"><failure message="lost"/></testcase>
      <testcase classname="tests.clients.test_java" name="test_c"><skipped message="no java"/></testcase>
    </testsuite></testsuites>"""
    assert list(pytest_suite.cases(report)) == [
        Case("test_java::test_a", Outcome.PASSED),
        Case("test_java::test_b", Outcome.FAILED, "lost"),
        Case("test_java::test_c", Outcome.SKIPPED, "no java"),
    ]
