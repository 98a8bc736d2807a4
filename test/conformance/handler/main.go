// Command handler is the conformance handler in Go: it does what each record
// says. See test/conformance/README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kconsume/kconsume/plugin"
)

func main() {
	fmt.Println("before serve")
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	if mode == "slow" {
		time.Sleep(200 * time.Millisecond)
	}
	var h plugin.Handler = plugin.HandlerFunc(handle)
	if mode == "batch" {
		h = plugin.Batches(plugin.BatchHandlerFunc(handleBatch), plugin.BatchConfig{Max: 100})
	}
	plugin.Serve(plugin.Config{Name: "conformance", Version: "1.2.3", Topics: []string{"conformance.a", "conformance.b"}}, h)
}

// ownError is of a type that no rule knows.
type ownError struct {
	text  string
	cause error
}

func (e *ownError) Error() string { return e.text }
func (e *ownError) Unwrap() error { return e.cause }

type codedError struct {
	code string
	text string
}

func (e *codedError) Error() string     { return e.text }
func (e *codedError) ErrorCode() string { return e.code }

type statusError int

func (e statusError) Error() string   { return "the shop says no" }
func (e statusError) StatusCode() int { return int(e) }

type sqlError string

func (e sqlError) Error() string    { return "the database says no" }
func (e sqlError) SQLState() string { return string(e) }

// command is what the first header named do says: a word and the rest.
func command(m *plugin.Message) (word, rest string) {
	for _, h := range m.Headers {
		if h.Key == "do" {
			word, rest, _ = strings.Cut(string(h.Value), " ")
			return word, rest
		}
	}
	return "ack", ""
}

func handle(ctx context.Context, m *plugin.Message) error {
	word, rest := command(m)
	switch word {
	case "ack":
		return nil
	case "echo":
		m.Emit(plugin.Record{Topic: "echo", Key: m.Key, Value: m.Value, Headers: m.Headers})
	case "tell":
		tell(ctx, m)
	case "emit":
		for i := range number(rest) {
			m.Emit(plugin.Record{Topic: "out", Value: strconv.AppendInt(nil, int64(i), 10)})
		}
	case "emit-bytes":
		m.Emit(plugin.Record{Topic: "out", Value: make([]byte, number(rest))})
	case "emit-then-fail":
		m.Emit(plugin.Record{Topic: "out"})
		return plugin.Permanent(errors.New(rest))
	case "json":
		return plugin.JSON(func(context.Context, any, *plugin.Message) error { return nil }).Handle(ctx, m)
	case "say":
		fmt.Println("out " + rest)
		fmt.Fprintln(os.Stderr, "err "+rest)
	case "gate", "gate-then-fail", "wait", "leave", "block", "spin":
		return wait(ctx, word, rest)
	case "exit", "exit-once", "kill":
		end(word, rest)
	default:
		return fail(word, rest)
	}
	return nil
}

// fail is for the commands that say how.
func fail(word, rest string) error {
	first, last, _ := strings.Cut(rest, " ")
	switch word {
	case "transient":
		return transient(first, last)
	case "permanent":
		return plugin.Permanent(&codedError{code: first, text: last})
	case "drop":
		return plugin.Drop(rest)
	case "causes":
		b, c, _ := strings.Cut(last, " ")
		return plugin.Permanent(&ownError{first, &ownError{b, &ownError{c, nil}}})
	case "wrapped":
		return &ownError{"own words", transient(first, last)}
	case "badtext":
		return plugin.Permanent(errors.New("bad \xff text"))
	case "longtext":
		return plugin.Permanent(errors.New(strings.Repeat("x", number(rest))))
	case "panic":
		panic(rest)
	case "unknown":
		return &ownError{rest, nil}
	case "typed":
		return typed(rest)
	}
	return plugin.Permanent(errors.New("no such command"))
}

func transient(ms, text string) error {
	if n := number(ms); n > 0 {
		return plugin.RetryAfter(errors.New(text), time.Duration(n)*time.Millisecond)
	}
	return plugin.Transient(errors.New(text))
}

func typed(kind string) error {
	what, arg, _ := strings.Cut(kind, "-")
	switch what {
	case "timeout":
		ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	case "refused":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		l.Close()
		_, err = net.Dial("tcp", l.Addr().String())
		return err
	case "json":
		var v any
		return json.Unmarshal([]byte(`{"a":`), &v)
	case "status":
		return statusError(number(arg))
	case "sqlstate":
		return sqlError(arg)
	case "grpc":
		return status.Error(codes.Code(number(arg)), "the service says no")
	}
	return nil
}

func tell(ctx context.Context, m *plugin.Message) {
	left := int64(0)
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d).Milliseconds()
	}
	header := func(name string, value any) plugin.Header {
		return plugin.Header{Key: name, Value: fmt.Append(nil, value)}
	}
	m.Emit(plugin.Record{Topic: "told", Headers: []plugin.Header{
		header("id", m.ID), header("topic", m.Topic), header("partition", m.Partition), header("offset", m.Offset),
		header("time", m.Time.UnixMilli()), header("attempt", m.Attempt), header("max_attempts", m.MaxAttempts),
		header("stage", m.Stage), header("deadline", left),
	}})
}

// wait is for the commands that take their time.
func wait(ctx context.Context, word, rest string) error {
	begun, rest, _ := strings.Cut(rest, " ")
	create(begun)
	switch word {
	case "gate":
		until(rest)
	case "gate-then-fail":
		file, text, _ := strings.Cut(rest, " ")
		until(file)
		return plugin.Transient(errors.New(text))
	case "wait":
		<-ctx.Done()
		return ctx.Err()
	case "leave":
		<-plugin.Draining(ctx)
		return context.Canceled
	case "block":
		time.Sleep(math.MaxInt64)
	case "spin":
		for n := uint(0); ; n++ {
			runtime.KeepAlive(n)
		}
	}
	return nil
}

func end(word, rest string) {
	switch word {
	case "exit":
		os.Exit(number(rest))
	case "exit-once":
		if _, err := os.Stat(rest); err != nil {
			create(rest)
			os.Exit(3)
		}
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func handleBatch(ctx context.Context, b *plugin.Batch) error {
	var whole error
	for i, m := range b.Messages {
		switch word, rest := command(m); word {
		case "transient", "permanent", "drop", "echo", "emit":
			b.Fail(i, handle(ctx, m))
		case "gate", "exit", "panic":
			handle(ctx, m)
		case "batch-error":
			whole = plugin.Transient(errors.New(rest))
		case "batch-size":
			m.Emit(plugin.Record{Topic: "size", Value: strconv.AppendInt(nil, int64(len(b.Messages)), 10)})
		}
	}
	return whole
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func create(file string) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		panic(err)
	}
}

func until(file string) {
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
