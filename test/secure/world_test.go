// Package secure_test runs the real binary against a real Apache Kafka that asks
// for TLS, SASL and permissions, with each single thing wrong in turn.
package secure_test

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kconsume/kconsume/test/kafka"
	"github.com/kconsume/kconsume/test/suite"
	kafkago "github.com/segmentio/kafka-go"
)

// The broker's listeners, each for one way to connect, or to fail to.
const (
	onTLS       = "SECURE"    // SASL_SSL, all mechanisms
	onNarrow    = "NARROW"    // SASL_SSL, SCRAM-SHA-512 alone
	onPlainSASL = "OPEN"      // SASL_PLAINTEXT
	onMutual    = "MUTUAL"    // SSL, a client certificate is required
	onExpired   = "EXPIRED"   // SSL, the broker's certificate has expired
	onElsewhere = "ELSEWHERE" // SSL, the broker's certificate is for another host
	onShort     = "SHORT"     // SASL_SSL, sessions of ten seconds
)

// The user that all mechanisms know, and the words that must never be printed.
const (
	user         = "billing"
	password     = "s3cret-of-billing"
	wrongSecret  = "wr0ng-s3cret"
	clientSecret = "s3cret-of-the-client"
)

var (
	broker  kafka.Shared
	bin     string // the directory of the binaries built for these tests
	brokers *kafka.Authority
	clients *kafka.Authority
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kconsume-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if err := suite.Build(dir, map[string]string{"kconsume": "cmd/kconsume", "kconsume-handler-probe": "test/probe"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if broker.Options, err = options(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return broker.Run(m)
}

// options are a broker that trusts nobody but the rig's own plain listener.
func options() (o kafka.Options, err error) {
	if brokers, err = kafka.NewAuthority("Brokers"); err != nil {
		return o, err
	}
	if clients, err = kafka.NewAuthority("Clients"); err != nil {
		return o, err
	}
	here := func(host net.IP) (cert, key []byte, err error) {
		return brokers.Issue(kafka.Leaf{Subject: pkix.Name{CommonName: "broker"}, IPs: []net.IP{host}})
	}
	elsewhere := func(net.IP) (cert, key []byte, err error) {
		return brokers.Issue(kafka.Leaf{Subject: pkix.Name{CommonName: "broker"}, Names: []string{"kafka.example.com"}})
	}
	expired := func(host net.IP) (cert, key []byte, err error) {
		return brokers.Issue(kafka.Leaf{Subject: pkix.Name{CommonName: "broker"}, IPs: []net.IP{host}, From: time.Now().Add(-48 * time.Hour), Until: time.Now().Add(-time.Hour)})
	}
	all := func(more map[string]string) map[string]string {
		p := map[string]string{
			"sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
			"plain.sasl.jaas.config":         fmt.Sprintf("org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=\"%s\";", user, password),
			"scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"oauthbearer.sasl.jaas.config":   "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";",
		}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	return kafka.Options{
		Listeners: []kafka.Listener{
			{Name: onTLS, Protocol: "SASL_SSL", Certificate: here, Properties: all(nil)},
			{Name: onNarrow, Protocol: "SASL_SSL", Certificate: here, Properties: all(map[string]string{"sasl.enabled.mechanisms": "SCRAM-SHA-512"})},
			{Name: onPlainSASL, Protocol: "SASL_PLAINTEXT", Properties: all(nil)},
			{Name: onMutual, Protocol: "SSL", Certificate: here, ClientCA: clients.PEM()},
			{Name: onExpired, Protocol: "SSL", Certificate: expired},
			{Name: onElsewhere, Protocol: "SSL", Certificate: elsewhere},
			{Name: onShort, Protocol: "SASL_SSL", Certificate: here, Properties: all(map[string]string{"connections.max.reauth.ms": "10000"})},
		},
		Properties: map[string]string{
			"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":                    "User:ANONYMOUS",
			"allow.everyone.if.no.acl.found": "false",
		},
	}, nil
}

var users sync.Once

// cluster is the broker, which knows the user by then.
func cluster(t *testing.T) *kafka.Cluster {
	t.Helper()
	c := broker.Cluster(t)
	users.Do(func() { setPassword(t, password) })
	return c
}

// setPassword makes the user known to SCRAM, or changes its password.
func setPassword(t *testing.T, password string) {
	t.Helper()
	const iterations = 4096
	salt := make([]byte, 16)
	if _, err := rand.Read(salt); err != nil {
		t.Fatal(err)
	}
	short, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	long, err := pbkdf2.Key(sha512.New, password, salt, iterations, sha512.Size)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []kafkago.UserScramCredentialsUpsertion{ // a user may be in a request once
		{Name: user, Mechanism: kafkago.ScramMechanismSha256, Iterations: iterations, Salt: salt, SaltedPassword: short},
		{Name: user, Mechanism: kafkago.ScramMechanismSha512, Iterations: iterations, Salt: salt, SaltedPassword: long},
	} {
		res, err := admin(t).AlterUserScramCredentials(context.WithoutCancel(t.Context()), &kafkago.AlterUserScramCredentialsRequest{Upsertions: []kafkago.UserScramCredentialsUpsertion{one}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range res.Results {
			if r.Error != nil {
				t.Fatal(r.Error)
			}
		}
	}
}

// admin is a client that may do everything.
func admin(t *testing.T) *kafkago.Client {
	transport := &kafkago.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafkago.Client{Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Timeout: 10 * time.Second, Transport: transport}
}

// principal is whom an ACL is for.
const principal = "User:" + user

// billingLeaf is the certificate of the user.
var billingLeaf = kafka.Leaf{Subject: pkix.Name{CommonName: "billing", Organization: []string{"Example"}}}

// mutualPrincipal is whom the broker takes the client certificate for.
const mutualPrincipal = "User:CN=billing,O=Example"

type permission struct {
	who, kind, name, operation string
}

var operationTypes = map[string]kafkago.ACLOperationType{
	"Read": kafkago.ACLOperationTypeRead, "Write": kafkago.ACLOperationTypeWrite, "Create": kafkago.ACLOperationTypeCreate, "Alter": kafkago.ACLOperationTypeAlter,
	"Describe": kafkago.ACLOperationTypeDescribe, "DescribeConfigs": kafkago.ACLOperationTypeDescribeConfigs,
}

func (p permission) entry() kafkago.ACLEntry {
	kind := map[string]kafkago.ResourceType{"topic": kafkago.ResourceTypeTopic, "group": kafkago.ResourceTypeGroup, "cluster": kafkago.ResourceTypeCluster}[p.kind]
	return kafkago.ACLEntry{
		ResourceType: kind, ResourceName: p.name, ResourcePatternType: kafkago.PatternTypeLiteral,
		Principal: p.who, Host: "*", Operation: operationTypes[p.operation], PermissionType: kafkago.ACLPermissionTypeAllow,
	}
}

// allow grants permissions.
func allow(t *testing.T, ps ...permission) {
	t.Helper()
	var acls []kafkago.ACLEntry
	for _, p := range ps {
		acls = append(acls, p.entry())
	}
	res, err := admin(t).CreateACLs(t.Context(), &kafkago.CreateACLsRequest{ACLs: acls})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(res.Errors...); err != nil {
		t.Fatal(err)
	}
}

// take takes permissions away.
func take(t *testing.T, ps ...permission) {
	t.Helper()
	var filters []kafkago.DeleteACLsFilter
	for _, p := range ps {
		e := p.entry()
		filters = append(filters, kafkago.DeleteACLsFilter{
			ResourceTypeFilter: e.ResourceType, ResourceNameFilter: e.ResourceName, ResourcePatternTypeFilter: e.ResourcePatternType,
			PrincipalFilter: e.Principal, HostFilter: e.Host, Operation: e.Operation, PermissionType: e.PermissionType,
		})
	}
	res, err := admin(t).DeleteACLs(t.Context(), &kafkago.DeleteACLsRequest{Filters: filters})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Results {
		if r.Error != nil || len(r.MatchingACLs) == 0 {
			t.Fatalf("delete ACLs: %v, %d matched", r.Error, len(r.MatchingACLs))
		}
	}
}

// everythingOf are all permissions that a consumer of a topic with one tier of
// 1s needs, topics not made yet.
func everythingOf(who, topic, group string) []permission {
	ps := []permission{{who, "topic", topic, "Read"}, {who, "topic", topic, "DescribeConfigs"}, {who, "group", group, "Read"}}
	for _, name := range besides(topic) {
		for _, op := range []string{"Read", "Write", "Create", "DescribeConfigs"} {
			ps = append(ps, permission{who, "topic", name, op})
		}
	}
	return ps
}

func besides(topic string) []string {
	return []string{topic + ".retry.1s", topic + ".replay", topic + ".dlq", topic + ".dlq.state"}
}

// createTopic makes a main topic.
func createTopic(t *testing.T, topic string) {
	t.Helper()
	if err := cluster(t).CreateTopic(t.Context(), kafkago.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
}

// file writes a file that others may not read and returns its path.
func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// brokersCA is the file of the brokers' authority.
func brokersCA(t *testing.T) string { return file(t, "ca.pem", brokers.PEM()) }

// by are the flags of a mechanism with a password.
func by(t *testing.T, mechanism, password string) []string {
	t.Helper()
	return []string{"--sasl-mechanism", mechanism, "--sasl-username", user, "--sasl-password-file", file(t, "password", []byte(password+"\n"))}
}

// byTLS adds TLS with the right authority.
func byTLS(t *testing.T, flags ...string) []string {
	t.Helper()
	return append([]string{"--tls", "--tls-ca", brokersCA(t)}, flags...)
}

// certificate are the flags of a client certificate.
func certificate(t *testing.T, from *kafka.Authority, l kafka.Leaf) []string {
	t.Helper()
	cert, key, err := from.Issue(l)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--tls-cert", file(t, "client.pem", cert), "--tls-key", file(t, "client.key", key)}
}

// shortDir is a folder whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kc-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// outcome is how a command ended.
type outcome struct {
	code    int
	text    string // what it said on stderr
	seconds float64
}

// kconsume runs a command to its end.
func kconsume(t *testing.T, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "kconsume"), args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+shortDir(t), "STATE_DIRECTORY="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	o := outcome{code: cmd.ProcessState.ExitCode(), text: stderr.String(), seconds: time.Since(began).Seconds()}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	for _, secret := range []string{password, wrongSecret, clientSecret} {
		if strings.Contains(stdout.String()+o.text, secret) {
			t.Errorf("a secret was printed: %s%s", stdout.String(), o.text)
		}
	}
	return o
}
