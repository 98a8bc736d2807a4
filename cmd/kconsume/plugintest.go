package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/kconsume/kconsume/admin/export"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/cmd/kconsume/internal/trial"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/plugin/host"
)

// namelessTopic is the topic of records that name none, where --topic does not
// say another.
const namelessTopic = "input"

// maxInput bounds the records of one trial, which are all held in memory.
const maxInput = 1 << 30

func pluginTestCommand() command {
	return command{name: "test", usage: "hand records to a handler and show what would become of them",
		description: "Starts the handler as run does and gives it the records of --input, with run's deadlines and retry settings,\n" +
			"but without Kafka: nothing is waited for and nothing is written. Each record is delivered once, or with\n" +
			"--until-settled until it is done or a dead letter. With --expect the outcomes are compared with those of a\n" +
			"file: it exits with 0 if they are the same, else with 1; --update writes the file.",
		use: option.Handlers | option.Launch | option.Trial | option.Print, required: []string{"handler", "input"},
		defaults: map[string]string{"log-level": "warn", "group": "test"}, forms: []string{"jsonl"}, action: pluginTest}
}

func pluginTest(ctx context.Context, in *invocation) error {
	s := in.opts
	if s.Bool("update") && s.Text("expect") == "" {
		return fail(exitUsage, "flag --update has nothing to write: kconsume plugin test: give --expect FILE too")
	}
	ec := trialConfig(s)
	if err := validConfig(ec); err != nil {
		return err
	}
	expected, err := readExpected(s)
	if err != nil {
		return err
	}
	records, err := readRecords(s.Text("input"))
	if err != nil {
		return err
	}
	hc, err := in.handlerFile(s.Text("handler"), host.TrustByPath)
	if err != nil {
		return err
	}
	hc.Logger = newLogger(s, in.stderr)
	defer os.RemoveAll(hc.SocketDir)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	report, err := trial.Run(ctx, trial.Config{Host: hc, Engine: ec, Topic: ec.Topics[0], Settle: s.Bool("until-settled")}, records)
	if err != nil && ctx.Err() != nil {
		err = errors.New("stopped: what is shown is not all")
	}
	var lines []trial.Line
	for i := range report.Results {
		lines = append(lines, trial.LineOf(&report.Results[i]))
	}
	v := verdict{lines: lines, compared: s.Text("expect") != "" && !s.Bool("update") && err == nil}
	if v.compared {
		v.differences = trial.Compare(lines, expected)
	}
	if printed := v.print(in, report); printed != nil {
		return errors.Join(err, printed)
	}
	switch {
	case err != nil:
		return err
	case s.Bool("update"):
		return writeExpected(s.Text("expect"), lines)
	case len(v.differences) > 0:
		return fmt.Errorf("%d of %d records differ from %s: mend the handler, or accept what it does with --update", v.differing(), len(lines), s.Text("expect"))
	case v.compared:
		return nil
	}
	return paused(lines)
}

// paused tells that nothing was shown of the records of a handler that dies.
func paused(lines []trial.Line) error {
	for _, l := range lines {
		if l.Outcome == string(trial.FatePause) {
			return fmt.Errorf("the handler's process ends of record %d, and it has answered no other: kconsume run would pause and blame none; add a record that it can handle", l.Record)
		}
	}
	return nil
}

// trialConfig is the part of the settings that decides over records. Brokers
// are there to pass as valid.
func trialConfig(s *option.Set) engine.Config {
	topics := s.List("topic")
	if len(topics) == 0 {
		topics = []string{namelessTopic}
	}
	return engine.Config{
		Brokers: []string{"127.0.0.1:0"}, Group: s.Text("group"), Topics: topics,
		Retry: s.Durations("retry"), MaxAttempts: s.Int("max-attempts"),
		RetryTopic: s.Text("retry-topic"), DLQTopic: s.Text("dlq-topic"),
		RetryAfterMax:    s.Duration("retry-after-max"),
		UnknownTransient: s.Text("unknown-errors") == "transient",
		Concurrency:      s.Int("concurrency"), HandlerTimeout: s.Duration("handler-timeout"),
		Emit: emitPolicies(s),
	}
}

func readRecords(path string) ([]export.Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail(exitConfig, "open records: %w: check --input", err)
	}
	defer f.Close()
	bounded := &io.LimitedReader{R: f, N: maxInput}
	d := export.NewDecoder(bounded, path)
	var records []export.Record
	for {
		r, err := d.Next()
		switch {
		case bounded.N == 0:
			return nil, fail(exitConfig, "read records: %s: it has more than %d MiB: split it", path, maxInput>>20)
		case err == io.EOF && len(records) == 0:
			return nil, fail(exitConfig, "read records: %s: it is empty: write one record a line, such as {\"value\":\"hello\"}", path)
		case err == io.EOF:
			return records, nil
		case err != nil:
			return nil, fail(exitConfig, "read records: %w", err)
		}
		records = append(records, r)
	}
}

// readExpected reads what is to be compared, nil if nothing is.
func readExpected(s *option.Set) ([]trial.Expected, error) {
	path := s.Text("expect")
	if path == "" || s.Bool("update") {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fail(exitConfig, "open expectations: %w: check --expect, or write the file with --update", err)
	}
	defer f.Close()
	expected, err := trial.ReadExpected(f, path)
	if err != nil {
		return nil, fail(exitConfig, "read expectations: %w", err)
	}
	return expected, nil
}

func writeExpected(path string, lines []trial.Line) error {
	b, err := trial.Expectation(lines)
	if err == nil {
		err = os.WriteFile(path, b, 0o666)
	}
	if err != nil {
		return fmt.Errorf("write expectations: %w", err)
	}
	return nil
}
