package admin

import (
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

// profiles serves Go's profiles to admins over the socket, and to nobody over
// TCP. The command line, which may hold what the handler is given, is not among
// them.
func (a *api) profiles(mux *http.ServeMux) {
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if _, overSocket := PeerOf(r.Context()); !overSocket {
				a.problem(w, http.StatusNotFound, "there is no "+r.URL.Path+" here: ask over the socket")
				return
			}
			if _, ok := a.admit(w, r, dlq.RoleAdmin); !ok {
				return
			}
			// A profile takes as long as it is asked to. Where the deadline cannot be
			// moved, as in a test, there is none.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longTimeout))
			h(w, r)
		})
	}
}
