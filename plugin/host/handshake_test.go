package host

import (
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAcceptHandshake(t *testing.T) {
	const dir = "/run/k/plugin-dir1"
	for _, c := range []struct {
		line, want string
		errs       []string
	}{
		{"1|1|unix|" + dir + "/s|grpc", "1|1|unix|" + dir + "/s|grpc", nil},
		{"1|1|unix|" + dir + "/s|grpc|" + strings.Repeat("A", 60) + "|true\r", "1|1|unix|" + dir + "/s|grpc", nil},
		{"1|7|unix|" + dir + "/s|grpc", "", []string{"speaks version 7 of the handler contract", "this kconsume version 1"}},
		{"2|1|unix|" + dir + "/s|grpc", "", []string{"version 2 of go-plugin's handshake"}},
		{"1|1|tcp|127.0.0.1:1|grpc", "", []string{"listens on tcp"}},
		{"1|1|unix|" + dir + "/s|netrpc", "", []string{`"netrpc", not grpc`}},
		{"1|1|unix|" + dir + "/s", "", []string{"has 4 fields"}},
		{"1|1|unix|/tmp/s|grpc", "", []string{"/tmp/s", "PLUGIN_UNIX_SOCKET_DIR"}},
		{"1|1|unix|" + dir + "/../s|grpc", "", []string{"PLUGIN_UNIX_SOCKET_DIR"}},
		{"1|1|unix|" + dir + "/" + strings.Repeat("s", 100) + "|grpc", "", []string{"more than 107"}},
	} {
		got, err := acceptHandshake(c.line, dir)
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
		wantError(t, err, c.errs)
	}
}

func TestHandshakeIsTheFirstSuchLine(t *testing.T) {
	r, w := io.Pipe()
	h := handshake{socket: "/s", to: w, refuse: func(err error) { t.Error(err) }, log: newOutput(slog.New(slog.DiscardHandler), new(atomic.Uint64))}
	go func() {
		for _, line := range []string{"hello", "1|2", "1|1|unix|/s/a|grpc|cert", "1|1|unix|/s/b|grpc"} {
			h.line([]byte(line), 0)
		}
	}()
	got, err := io.ReadAll(r)
	if string(got) != "1|1|unix|/s/a|grpc\n" || err != nil {
		t.Errorf("go-plugin reads %q, %v", got, err)
	}
}
