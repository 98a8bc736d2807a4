package history

import (
	"fmt"
	"strconv"
	"strings"
)

// ReplayID names one sending of a dead letter, and no other. As text it is
// JOB/PARTITION/OFFSET/IDENTITY, in X-Replay-Id of the copy that was sent.
type ReplayID struct {
	Job       string // the job that sent it
	Partition int32  // of the dead letter, as is Offset
	Offset    int64
	Identity  string // of the dead letter, whatever lies at its place later
}

func (id ReplayID) String() string {
	return fmt.Sprintf("%s/%d/%d/%s", id.Job, id.Partition, id.Offset, id.Identity)
}

// maxReplayWord bounds Job and Identity, in bytes.
const maxReplayWord = 128

// ParseReplayID reads one. Whatever is not spelled as String does is refused:
// the header may be anybody's.
func ParseReplayID(s string) (ReplayID, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 {
		return ReplayID{}, false
	}
	p, perr := strconv.ParseInt(parts[1], 10, 32)
	o, oerr := strconv.ParseInt(parts[2], 10, 64)
	id := ReplayID{Job: parts[0], Partition: int32(p), Offset: o, Identity: parts[3]}
	ok := perr == nil && oerr == nil && p >= 0 && o >= 0 && word(id.Job) && word(id.Identity) && id.String() == s
	return id, ok
}

func word(s string) bool {
	return s != "" && len(s) <= maxReplayWord && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}
