package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/kconsume/kconsume/cmd/kconsume/internal/option"
	"github.com/kconsume/kconsume/engine"
	"github.com/kconsume/kconsume/engine/secure"
	"github.com/kconsume/kconsume/engine/topics"
	"github.com/kconsume/kconsume/engine/topology"
	"github.com/kconsume/kconsume/plugin"
	"github.com/kconsume/kconsume/plugin/host"
	"github.com/segmentio/kafka-go"
)

func validateCommand() command {
	return command{name: "validate", usage: "check settings, handler, brokers and topics, and say all that is wrong",
		use: option.Run, required: runRequired(), tolerant: true, action: validate}
}

// validate goes on after a problem wherever the next check makes sense without it.
func validate(ctx context.Context, in *invocation) error {
	errs := in.problems
	logger := slog.New(slog.DiscardHandler)
	if len(errs) == 0 {
		if err := validSettings(in); err != nil {
			errs = append(errs, err)
		}
	}
	if in.opts.Text("handler") != "" {
		if err := validateHandler(ctx, in, logger); err != nil {
			errs = append(errs, err)
		}
	}
	if len(in.opts.Missing([]string{"brokers", "topic"})) == 0 {
		if err := validateTopics(ctx, in); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(once(errs)...); err != nil {
		return err
	}
	fmt.Fprintln(in.stdout, "ok")
	return nil
}

// once leaves out what another check has said already.
func once(errs []error) []error {
	seen := map[string]bool{}
	var out []error
	for _, e := range leaves(errors.Join(errs...)) {
		if !seen[e.Error()] {
			seen[e.Error()] = true
			out = append(out, e)
		}
	}
	return out
}

// validSettings holds the settings against one another.
func validSettings(in *invocation) error {
	c := engineConfig(in.opts)
	return errors.Join(validConfig(c), validFiles(c.Security), validCritical(in.opts), validAdmin(in.opts))
}

// validFiles reads what brokers are connected with, where the settings themselves
// are right.
func validFiles(s secure.Settings) error {
	if s.Validate() != nil {
		return nil
	}
	return configLines(secure.New(secure.Config{Settings: s}).Check())
}

func validConfig(c engine.Config) error {
	c.Handler = plugin.HandlerFunc(func(context.Context, *plugin.Message) error { return nil }) // stands for the process
	return c.Validate()
}

func validateHandler(ctx context.Context, in *invocation, logger *slog.Logger) error {
	dir, err := os.MkdirTemp("", "kconsume")
	if err != nil {
		return fmt.Errorf("make a directory for the handler's socket: %w", err)
	}
	defer os.RemoveAll(dir)
	c, err := handlerConfig(in, dir, logger)
	if err != nil {
		return err
	}
	_, err = host.Inspect(ctx, c)
	return err
}

// validateTopics accepts what run would: topics that are missing are fine if
// run may create them.
func validateTopics(ctx context.Context, in *invocation) error {
	return onCluster(ctx, in, func(ctx context.Context, c *kafka.Client, t *topology.Topology) error {
		actual, err := topics.Read(ctx, c, t)
		if err != nil {
			return err
		}
		p := policy(in.opts)
		p.Create = in.opts.Bool("create-topics")
		plan := t.Plan(actual, p)
		for _, w := range plan.Warnings {
			fmt.Fprintf(in.stderr, "kconsume: warning: %s\n", w)
		}
		for _, ch := range plan.Changes {
			fmt.Fprintf(in.stdout, "run will %s topic %s\n", ch.Action, ch.Topic)
		}
		return errors.Join(configLines(errors.Join(plan.Problems...)), topics.Allowed(ctx, c, engine.Needs(engineConfig(in.opts), t)))
	})
}
