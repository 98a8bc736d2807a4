package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/history"
	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/plugin/host"
	outside "github.com/kconsume/kconsume/plugin/printable"
)

// engineConfig is the engine's part of the settings. What the process brings,
// the deliverer, logger and registry, is left to the caller.
func engineConfig(s *option.Set) engine.Config {
	start, at := s.Start("start")
	return engine.Config{
		Brokers: s.List("brokers"), Group: s.Text("group"), Topics: s.List("topic"),

		Retry: s.Durations("retry"), MaxAttempts: s.Int("max-attempts"),
		RetryTopic: s.Text("retry-topic"), DLQTopic: s.Text("dlq-topic"),
		RetryAfterMax:    s.Duration("retry-after-max"),
		UnknownTransient: s.Text("unknown-errors") == "transient",

		KeepTopics:   !s.Bool("create-topics"),
		DLQRetention: s.Duration("dlq-retention"),

		Order:       engine.Order(s.Text("order")),
		Concurrency: s.Int("concurrency"), MaxBuffer: s.Int("max-buffer"),

		Start: engine.OffsetPolicy(start), StartTime: at,
		OffsetLost:      engine.OffsetPolicy(s.Text("offset-lost")),
		ReadUncommitted: s.Text("isolation") == "read_uncommitted",

		CommitInterval: s.Duration("commit-interval"),
		HandlerTimeout: s.Duration("handler-timeout"),
		DrainTimeout:   s.Duration("drain-timeout"),

		ClientID:          s.Text("client-id"),
		SessionTimeout:    s.Duration("session-timeout"),
		HeartbeatInterval: s.Duration("heartbeat-interval"),
		RebalanceTimeout:  s.Duration("rebalance-timeout"),

		WriteAttempts:   s.Int("write-attempts"),
		WriteBackoffMin: s.Duration("write-backoff-min"), WriteBackoffMax: s.Duration("write-backoff-max"),
		WriteTimeout: s.Duration("write-timeout"), ReadTimeout: s.Duration("read-timeout"),

		Oversize: engine.OversizePolicy(s.Text("oversize")), Emit: emitPolicies(s), Headers: dialects(s),

		ExitIfUnreachable: s.Bool("exit-if-unreachable"),

		Security: security(s),
	}
}

// security is how brokers are connected to.
func security(s *option.Set) secure.Settings {
	return secure.Settings{
		TLS: s.Bool("tls"), CAFile: s.Text("tls-ca"), CertFile: s.Text("tls-cert"), KeyFile: s.Text("tls-key"), ServerName: s.Text("tls-server-name"),
		Mechanism: secure.Mechanism(s.Text("sasl-mechanism")), Username: s.Text("sasl-username"), PasswordFile: s.Text("sasl-password-file"),
		TokenFile: s.Text("sasl-oauth-token-file"), TokenURL: s.Text("sasl-oauth-token-url"), ClientID: s.Text("sasl-oauth-client-id"),
		ClientSecretFile: s.Text("sasl-oauth-client-secret-file"), Scope: s.Text("sasl-oauth-scope"),
	}
}

// dialer connects to brokers as the settings say, which it checks first: files
// are read once, and what should not be is told.
func dialer(in *invocation) (*secure.Dialer, error) {
	s := security(in.opts)
	if err := s.Validate(); err != nil {
		return nil, configLines(err)
	}
	d := secure.New(secure.Config{Settings: s, ClientID: in.opts.Text("client-id")})
	for _, w := range s.Warnings() {
		fmt.Fprintf(in.stderr, "kconsume: warning: %s\n", w)
	}
	return d, configLines(d.Check())
}

// emitPolicies are the topics that a handler may emit to. A topic given twice
// has the policy given last.
func emitPolicies(s *option.Set) map[string]engine.EmitPolicy {
	emit := map[string]engine.EmitPolicy{}
	for _, e := range s.List("emit") {
		topic, policy, _ := strings.Cut(e, "=")
		emit[topic] = engine.EmitPolicy(policy)
	}
	return emit
}

// handlerConfig is how run starts the handler.
func handlerConfig(in *invocation, socketDir string, logger *slog.Logger) (host.Config, error) {
	s := in.opts
	c, err := handlerAt(in, s.Text("handler"), byName(s.Text("handler")), socketDir, logger)
	c.Concurrency, c.Procs, c.TLS, c.Logger = s.Int("concurrency"), s.Int("handler-procs"), s.Bool("handler-tls"), logger
	return c, err
}

// byName is how much a handler is trusted that is named so. Handlers that are
// named by their path are trusted more than those that are looked up: a person
// chose the file itself.
func byName(name string) host.Trust {
	if strings.Contains(name, "/") {
		return host.TrustByPath
	}
	return host.TrustStrict
}

// handlerAt finds a handler's file and says how to run it.
func handlerAt(in *invocation, name string, trust host.Trust, socketDir string, logger *slog.Logger) (host.Config, error) {
	s := in.opts
	path, err := host.Find(name, s.List("handler-dir"))
	if err != nil {
		return host.Config{}, &failure{exitConfig, err}
	}
	if err := host.Check(path, trust, s.Text("handler-sha256")); err != nil {
		return host.Config{}, configLines(err)
	}
	return host.Config{
		Path: path, Trust: trust, SHA256: s.Text("handler-sha256"),
		Args: s.List("handler-arg"), Env: handlerEnv(in, logger), SocketDir: socketDir,
	}, nil
}

// configLines makes each of joined errors one of the configuration.
func configLines(err error) error {
	var lines []error
	for _, e := range leaves(err) {
		lines = append(lines, &failure{exitConfig, e})
	}
	return errors.Join(lines...)
}

// handlerEnv is the handler's environment: NAME is passed on as we have it.
func handlerEnv(in *invocation, logger *slog.Logger) []string {
	var out []string
	for _, e := range in.opts.List("handler-env") {
		if strings.Contains(e, "=") {
			out = append(out, e)
			continue
		}
		v, ok := in.env(e)
		if !ok {
			logger.Warn("a variable for the handler is not set: not passed on", "handler-env", e)
			continue
		}
		out = append(out, e+"="+v)
	}
	return out
}

func newLogger(s *option.Set, w io.Writer) *slog.Logger {
	logger, _ := newLeveledLogger(s, w)
	return logger
}

// newLeveledLogger is a logger whose level can be changed.
func newLeveledLogger(s *option.Set, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(logLevel(s))
	o := &slog.HandlerOptions{Level: level}
	w = outside.Log(w)
	if s.Text("log-format") == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), level
	}
	return slog.New(slog.NewTextHandler(w, o)), level
}

func logLevel(s *option.Set) (level slog.Level) {
	if err := level.UnmarshalText([]byte(s.Text("log-level"))); err != nil {
		panic(fmt.Sprintf("a log level that the option table allows: %v", err))
	}
	return level
}

// dialects are the headers beside our own.
func dialects(s *option.Set) (out []history.Dialect) {
	for _, d := range s.List("headers") {
		if d != "kconsume" {
			out = append(out, history.Dialect(d))
		}
	}
	return out
}
