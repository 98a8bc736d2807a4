package sim

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The brokers forget to end the session of a member whose connection broke while
// they answered its SyncGroup: it would own its partitions for ever. Real ones do
// not, so we have it leave when it was silent for a session.

// seen notes that a member spoke to the brokers.
func (w *world) seen(memberID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastSeen[memberID] = time.Now()
}

// expireSessions watches for such members until the run is over.
func (w *world) expireSessions(ctx context.Context) {
	for {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
		g := w.cluster.GroupInfo(group)
		if g == nil || g.State != "Stable" {
			continue
		}
		for _, m := range g.Members {
			w.mu.Lock()
			if w.lastSeen[m.MemberID].IsZero() { // it has only just joined
				w.lastSeen[m.MemberID] = time.Now()
			}
			silent := time.Since(w.lastSeen[m.MemberID])
			w.mu.Unlock()
			if silent <= sessionTimeout+time.Second {
				continue
			}
			w.history.fault(m.MemberID, "its session has ended")
			q := kmsg.NewPtrLeaveGroupRequest()
			q.Group = group
			one := kmsg.NewLeaveGroupRequestMember()
			one.MemberID = m.MemberID
			q.Members = append(q.Members, one)
			_, _ = q.RequestWith(ctx, w.producer) // else the next second
		}
	}
}
