package secure_test

import (
	"strings"
	"testing"

	"github.com/kconsume/kconsume/test/kcat"
)

// By each way to connect a record is handled, one is retried, one becomes a dead
// letter, and a clean stop leaves nothing. kcat reads what was written.
func TestEveryWayWorks(t *testing.T) {
	c := cluster(t)
	for _, w := range []struct {
		name, listener, who string
		flags               func(*testing.T) []string
		kcat                func(*testing.T) []string
	}{
		{"plain", onTLS, principal, func(t *testing.T) []string { return byTLS(t, by(t, "plain", password)...) }, func(t *testing.T) []string { return kcatBy(t, "PLAIN") }},
		{"scram-sha-256", onTLS, principal, func(t *testing.T) []string { return byTLS(t, by(t, "scram-sha-256", password)...) }, nil},
		{"scram-sha-512", onTLS, principal, func(t *testing.T) []string { return byTLS(t, by(t, "scram-sha-512", password)...) }, nil},
		{"open", onPlainSASL, principal, func(t *testing.T) []string { return by(t, "scram-sha-512", password) }, nil},
		{"mutual", onMutual, mutualPrincipal, func(t *testing.T) []string { return byTLS(t, certificate(t, clients, billingLeaf)...) }, nil},
		{"token", onTLS, principal, func(t *testing.T) []string {
			return byTLS(t, "--sasl-mechanism", "oauthbearer", "--sasl-oauth-token-file", file(t, "token", []byte(unsecuredToken(user, tokenLife)+"\n")))
		}, nil},
		{"grant", onTLS, principal, func(t *testing.T) []string {
			e := tokenEndpoint(t, user, tokenLife)
			return byTLS(t, "--sasl-mechanism", "oauthbearer", "--sasl-oauth-token-url", e.URL, "--sasl-oauth-client-id", "kconsume", "--sasl-oauth-client-secret-file", file(t, "secret", []byte(clientSecret)))
		}, nil},
	} {
		t.Run(w.name, func(t *testing.T) {
			topic := "way-" + w.name
			createTopic(t, topic)
			allow(t, everythingOf(w.who, topic, topic)...)
			d := start(t, c.ListenerAddr(w.listener, 0), topic, topic, w.flags(t)...)
			send(t, topic, "ok", "fail 1", "perm")
			d.handled("main", 3)
			d.handled("retry.1s", 1)
			d.stop()
			brokers, args := c.Bootstrap(), []string(nil)
			if w.kcat != nil {
				brokers, args = c.ListenerAddr(w.listener, 0), w.kcat(t)
			}
			dead := kcat.Consume(t, brokers, topic+".dlq", args...)
			if len(dead) != 1 || string(dead[0].Value) != "perm" {
				t.Errorf("the DLQ holds %v", dead)
			}
		})
	}
}

// kcatBy are kcat's own settings for the user.
func kcatBy(t *testing.T, mechanism string) []string {
	t.Helper()
	return []string{
		"-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=" + mechanism, "-X", "sasl.username=" + user, "-X", "sasl.password=" + password,
		"-X", "ssl.ca.location=" + brokersCA(t), "-X", "ssl.endpoint.identification.algorithm=none",
	}
}

// A broker that dies and comes back is connected to again, and nobody is told
// meanwhile that settings are wrong.
func TestBrokerComesBack(t *testing.T) {
	c := cluster(t)
	const topic = "back"
	createTopic(t, topic)
	allow(t, everythingOf(principal, topic, topic)...)
	d := start(t, c.ListenerAddr(onTLS, 0), topic, topic, byTLS(t, by(t, "scram-sha-512", password)...)...)
	send(t, topic, "ok", "fail 1", "perm")
	d.handled("retry.1s", 1)
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	d.says(0, "connection refused")
	if err := c.Start(0); err != nil {
		t.Fatal(err)
	}
	send(t, topic, "ok", "fail 1", "perm")
	d.handled("main", 6)
	d.handled("retry.1s", 2)
	d.stop()
	for _, blames := range []string{"--tls", "--sasl", "kafka-acls"} {
		if strings.Contains(d.said(), blames) {
			t.Errorf("the log blames %s", blames)
		}
	}
}
