package secure_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// sessionTime is how long records flow while sessions end every ten seconds: in
// full it is as many ends as an hour has where a session lasts three minutes.
func sessionTime() time.Duration {
	if os.Getenv("KCONSUME_SECURE_FULL") != "" {
		return 3 * time.Minute
	}
	return 45 * time.Second
}

// A session that ends costs nothing: no record is lost or delivered again, no
// delivery is cancelled, and the group does not assign anew.
func TestSessionExpiryCostsNothing(t *testing.T) {
	c := cluster(t)
	const perSecond = 50
	out := &told{}
	out.add("MECHANISM", "SECONDS", "SENT", "HANDLED", "LOST", "DUPLICATES", "CANCELLED", "REJOINS", "CUT OFF", "LONGEST PAUSE", "LONGEST WAIT")
	defer out.print(t)
	flags := map[string][]string{
		"plain":         byTLS(t, by(t, "plain", password)...),
		"scram-sha-512": byTLS(t, by(t, "scram-sha-512", password)...),
	}
	tokens := tokenEndpoint(t, user, 8*time.Second) // so the session ends with the token
	flags["oauthbearer"] = byTLS(t, "--sasl-mechanism", "oauthbearer", "--sasl-oauth-token-url", tokens.URL, "--sasl-oauth-client-id", "kconsume",
		"--sasl-oauth-client-secret-file", file(t, "secret", []byte(clientSecret)))
	daemons := map[string]*daemon{}
	for m, f := range flags {
		topic := "sessions-" + m
		createTopic(t, topic)
		allow(t, everythingOf(principal, topic, topic)...)
		daemons[m] = start(t, c.ListenerAddr(onShort, 0), topic, topic, f...)
	}
	for m, d := range daemons {
		send(t, "sessions-"+m, "ok")
		d.handled("main", 1)
	}
	sent := map[string]int{}
	var mu sync.Mutex
	var senders sync.WaitGroup
	for m := range daemons {
		senders.Go(func() {
			n := trickle(t, "sessions-"+m, perSecond, sessionTime())
			mu.Lock()
			defer mu.Unlock()
			sent[m] = n + 1
		})
	}
	senders.Wait()
	for m, d := range daemons {
		d.handled("main", sent[m])
		d.stop()
		r := reckon(t, d.calls(), sent[m])
		log := d.said()
		// A broker cuts a connection off whose session has ended.
		rejoins, cut := strings.Count(log, "joined the group")-1, strings.Count(log, "EOF")+strings.Count(log, "reset by peer")
		out.add(m, fmt.Sprint(sessionTime().Seconds()), fmt.Sprint(sent[m]), fmt.Sprint(r.handled), fmt.Sprint(r.lost), fmt.Sprint(r.duplicates), fmt.Sprint(r.cancelled),
			fmt.Sprint(rejoins), fmt.Sprint(cut), r.pause.String(), r.wait.String())
		if r.lost+r.duplicates+r.cancelled+rejoins+cut > 0 {
			t.Errorf("%s: %+v, %d rejoins, %d times cut off\n%s", m, r, rejoins, cut, log)
		}
	}
	if given := tokens.given.Load(); given < 4 || tokens.refused.Load() > 0 {
		t.Errorf("the endpoint gave %d tokens and refused %d", given, tokens.refused.Load())
	}
}

// trickle writes records at a rate, every tenth of which takes a second and a
// half, so that deliveries are under way whenever a session ends.
func trickle(t *testing.T, topic string, perSecond int, lasts time.Duration) (sent int) {
	w := &kafkago.Writer{Addr: kafkago.TCP(broker.Cluster(t).Bootstrap()), Topic: topic, RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond, Transport: admin(t).Transport}
	defer w.Close()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		<-tick.C
		value := "ok"
		if sent%10 == 0 {
			value = "sleep 1500"
		}
		if err := w.WriteMessages(t.Context(), kafkago.Message{Value: []byte(value)}); err != nil {
			t.Error(err)
			return sent
		}
		sent++
	}
	return sent
}

// reckoning is what became of records.
type reckoning struct {
	handled, lost, duplicates, cancelled int

	pause time.Duration // between two beginnings
	wait  time.Duration // from a record's own time to its beginning
}

func reckon(t *testing.T, calls []call, sent int) (r reckoning) {
	t.Helper()
	begun, ended := map[string]int{}, map[string]int{}
	var last int64
	for _, c := range calls {
		if c.end {
			ended[c.id]++
			continue
		}
		begun[c.id]++
		_, stamp, _ := strings.Cut(c.id, "@")
		ms, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil {
			t.Fatalf("record id %q", c.id)
		}
		if len(begun) > 1 { // the first one came before the rate began
			r.pause = max(r.pause, time.Duration(c.at-last).Round(time.Millisecond))
			r.wait = max(r.wait, time.Duration(c.at-ms*1e6).Round(time.Millisecond))
		}
		last = c.at
	}
	r.handled = len(ended)
	r.lost = sent - len(ended)
	for id, n := range begun {
		r.duplicates += n - 1
		if ended[id] < n {
			r.cancelled++
		}
	}
	return r
}
