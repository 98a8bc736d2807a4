package secure_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kconsume/kconsume/test/kafka"
)

// told is a table for people, printed when the test ends.
type told struct{ rows [][]string }

func (w *told) add(cells ...string) { w.rows = append(w.rows, cells) }

func (w *told) print(t *testing.T) {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range w.rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	tw.Flush()
	t.Logf("\n%s", b.String())
}

// lastLine is the last line of a text that says something, as a cell.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "kconsume: ")
}

// withinSeconds is what a person is willing to wait. It bounds a message, not a
// speed: a broken path takes the 90 seconds of a command, or for ever.
const withinSeconds = 40

// A connection that cannot be says why and what to do, before it has waited for
// anything, and the exit code says whether another try may help.
func TestConnectionFaults(t *testing.T) {
	c := cluster(t)
	createTopic(t, "faults")
	allow(t, everythingOf(principal, "faults", "faults")...)
	other, err := kafka.NewAuthority("Strangers")
	if err != nil {
		t.Fatal(err)
	}
	open := file(t, "open", []byte(password))
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	expired := billingLeaf
	expired.From, expired.Until = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
	tokens := tokenEndpoint(t, user, tokenLife)
	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	plain := c.Bootstrap()
	at := func(name string) string { return c.ListenerAddr(name, 0) }

	out := &told{}
	out.add("FAULT", "EXIT", "SECONDS", "MESSAGE")
	defer out.print(t)
	for _, f := range []struct {
		fault   string
		brokers string
		flags   []string
		code    int
		says    []string
	}{
		{"wrong password, PLAIN", at(onTLS), byTLS(t, by(t, "plain", wrongSecret)...), 77, []string{"refuses user billing by PLAIN", "--sasl-username"}},
		{"wrong password, SCRAM-SHA-256", at(onTLS), byTLS(t, by(t, "scram-sha-256", wrongSecret)...), 77, []string{"refuses user billing by SCRAM-SHA-256", "the password in "}},
		{"wrong password, SCRAM-SHA-512", at(onTLS), byTLS(t, by(t, "scram-sha-512", wrongSecret)...), 77, []string{"refuses user billing by SCRAM-SHA-512"}},
		{"wrong password, no TLS", at(onPlainSASL), by(t, "scram-sha-256", wrongSecret), 77, []string{"refuses user billing"}},
		{"unknown user", at(onTLS), byTLS(t, "--sasl-mechanism", "scram-sha-512", "--sasl-username", "nobody", "--sasl-password-file", file(t, "p", []byte(wrongSecret))), 77, []string{"refuses user nobody"}},
		{"mechanism that the broker lacks", at(onNarrow), byTLS(t, by(t, "plain", password)...), 78, []string{"does not take SASL PLAIN, but SCRAM-SHA-512", "--sasl-mechanism"}},
		{"SASL to a port without", at(onMutual), append(byTLS(t, by(t, "plain", password)...), certificate(t, clients, billingLeaf)...), 78, []string{"takes no SASL at this port"}},
		{"SASL to a plain port", plain, by(t, "scram-sha-512", password), 78, []string{"takes no SASL at this port"}},
		{"no SASL to a SASL port", at(onPlainSASL), nil, 78, []string{"wants SASL (", "--sasl-mechanism"}},
		{"no SASL to a SASL_SSL port", at(onTLS), byTLS(t), 78, []string{"wants SASL (", "--sasl-mechanism"}},
		{"TLS to a plain port", plain, byTLS(t), 78, []string{"does not speak TLS", "remove --tls"}},
		{"TLS and SASL to a plain SASL port", at(onPlainSASL), byTLS(t, by(t, "plain", password)...), 78, []string{"does not speak TLS"}},
		{"plain to a TLS port", at(onExpired), nil, 78, []string{"speaks TLS: add --tls"}},
		{"SASL without TLS to a TLS port", at(onTLS), by(t, "scram-sha-512", password), 78, []string{"speaks TLS: add --tls"}},
		{"unknown authority", at(onTLS), append([]string{"--tls", "--tls-ca", file(t, "other.pem", other.PEM())}, by(t, "plain", password)...), 78, []string{"issued by CN=Brokers", "--tls-ca"}},
		{"no authority given", at(onTLS), append([]string{"--tls"}, by(t, "plain", password)...), 78, []string{"issued by CN=Brokers", "give the authority's certificate with --tls-ca"}},
		{"expired broker certificate", at(onExpired), byTLS(t), 69, []string{"its certificate is valid from ", "have it renewed"}},
		{"wrong host name", at(onElsewhere), byTLS(t), 78, []string{"for kafka.example.com, not for 127.", "--tls-server-name"}},
		{"client certificate missing", at(onMutual), byTLS(t), 78, []string{"wants a client certificate", "--tls-cert and --tls-key"}},
		{"client certificate of another authority", at(onMutual), byTLS(t, certificate(t, other, billingLeaf)...), 77, []string{"refuses our certificate CN=billing,O=Example", "issued by CN=Strangers"}},
		{"client certificate expired", at(onMutual), byTLS(t, certificate(t, clients, expired)...), 78, []string{"refuses our certificate CN=billing,O=Example", "it expired at "}},
		{"token that is none", at(onTLS), byTLS(t, "--sasl-mechanism", "oauthbearer", "--sasl-oauth-token-file", file(t, "token", []byte("abc"))), 77, []string{"refuses the token", "--sasl-oauth-token-file"}},
		{"token that has expired", at(onTLS), byTLS(t, "--sasl-mechanism", "oauthbearer", "--sasl-oauth-token-file", file(t, "token", []byte(unsecuredToken(user, -time.Hour)))), 77, []string{"refuses the token"}},
		{"client's secret wrong", at(onTLS), byTLS(t, granted(t, tokens.URL, wrongSecret)...), 77, []string{"refuses client kconsume (status 401, invalid_client)", "the secret in "}},
		{"token endpoint down", at(onTLS), byTLS(t, granted(t, nobody.URL, clientSecret)...), 69, []string{"connection refused: check --sasl-oauth-token-url"}},
		{"token endpoint is another address", at(onTLS), byTLS(t, granted(t, tokens.URL+"/elsewhere", clientSecret)...), 78, []string{"there is none at that path (status 404)"}},
		{"password file that all may read", at(onTLS), byTLS(t, "--sasl-mechanism", "plain", "--sasl-username", user, "--sasl-password-file", open), 78, []string{"has mode 0644", "chmod 0640 " + open}},
		{"password file missing", at(onTLS), byTLS(t, "--sasl-mechanism", "plain", "--sasl-username", user, "--sasl-password-file", "/nowhere/password"), 78, []string{"--sasl-password-file: cannot read /nowhere/password"}},
		{"authority file without --tls", at(onTLS), append([]string{"--tls-ca", brokersCA(t)}, by(t, "plain", password)...), 78, []string{"--tls-ca has no function here: add --tls"}},
	} {
		t.Run(f.fault, func(t *testing.T) {
			common := append([]string{"--brokers", f.brokers, "--topic", "faults", "--group", "faults", "--retry", "1s"}, f.flags...)
			one := kconsume(t, append([]string{"topics", "plan"}, common...)...)
			daemon := kconsume(t, append([]string{"run", "--handler", probe(), "--handler-env", "PROBE_LOG=/dev/null", "--metrics", "", "--exit-if-unreachable"}, common...)...)
			out.add(f.fault, fmt.Sprintf("%d, %d", one.code, daemon.code), fmt.Sprintf("%.1f, %.1f", one.seconds, daemon.seconds), lastLine(one.text))
			for what, o := range map[string]outcome{"topics plan": one, "run": daemon} {
				if o.code != f.code || o.seconds > withinSeconds {
					t.Errorf("%s: exit %d after %.1f s, want %d within %d s\n%s", what, o.code, o.seconds, f.code, withinSeconds, o.text)
				}
				for _, says := range f.says {
					if !strings.Contains(o.text, says) {
						t.Errorf("%s does not say %q: %s", what, says, o.text)
					}
				}
			}
		})
	}
}

// granted are the flags of the client credentials grant.
func granted(t *testing.T, url, secret string) []string {
	t.Helper()
	return []string{"--sasl-mechanism", "oauthbearer", "--sasl-oauth-token-url", url, "--sasl-oauth-client-id", "kconsume", "--sasl-oauth-client-secret-file", file(t, "secret", []byte(secret))}
}

func probe() string { return bin + "/kconsume-handler-probe" }
