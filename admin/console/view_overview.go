package console

import (
	"net/http"
	"time"

	"github.com/kconsume/kconsume/admin/dlq"
)

// pipeline is a main topic with its stages in the order of a record's way, and
// the DLQ at its end.
type pipeline struct {
	Topic  string
	Stages []stageView
	Replay *stageView
	DLQ    *dlq.Summary
	Note   string // why nothing is known of the DLQ
}

type stageView struct {
	stage
	NextDue time.Time
	Problem string
}

type overviewData struct {
	Status    status
	Pipelines []pipeline
	Problems  []string
	Jobs      []dlq.Job
}

func (h *console) overview(w http.ResponseWriter, r *http.Request) {
	s, err := h.readStatus(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	d := overviewData{Status: s, Problems: s.problems()}
	var summaries []dlq.Summary
	note := ""
	if h.cfg.DLQ != nil {
		if summaries, err = h.cfg.DLQ.Summaries(r.Context()); err != nil {
			note = err.Error()
		}
		if page, err := h.cfg.DLQ.Jobs(r.Context(), dlq.JobQuery{Limit: 5}); err == nil {
			for _, j := range page.Jobs {
				if !j.Status.Ended() {
					d.Jobs = append(d.Jobs, j)
				}
			}
		}
	}
	d.Pipelines = pipelines(s, summaries, note)
	v := h.view(r, "Overview", "overview", &d)
	v.Group, v.Refresh = s.Group, 5
	h.show(w, http.StatusOK, "overview.html", v)
}

// problems are what somebody ought to look at.
func (s *status) problems() (out []string) {
	add := func(text string) {
		if text != "" {
			out = append(out, text)
		}
	}
	add(s.Problem)
	if s.Handler.State != "running" {
		add("handler " + s.Handler.Name + " is " + s.Handler.State + ": " + s.Handler.LastExit)
	}
	for _, t := range s.Topics {
		add(t.Text)
	}
	for _, w := range s.Writes {
		add("writes to " + w.Topic + " fail: " + w.Reason)
	}
	for _, st := range s.Stages {
		for _, p := range st.Partitions {
			add(p.Problem)
		}
	}
	return out
}

func pipelines(s status, summaries []dlq.Summary, note string) []pipeline {
	var out []pipeline
	at := map[string]int{}
	line := func(topic string) *pipeline {
		i, known := at[topic]
		if !known {
			i = len(out)
			at[topic] = i
			out = append(out, pipeline{Topic: topic, Note: note})
		}
		return &out[i]
	}
	for _, st := range s.Stages {
		v := stageView{stage: st}
		for _, p := range st.Partitions {
			if !p.NextDue.IsZero() && (v.NextDue.IsZero() || p.NextDue.Before(v.NextDue)) {
				v.NextDue = p.NextDue
			}
			if v.Problem == "" {
				v.Problem = p.Problem
			}
		}
		l := line(st.Of)
		if st.Stage == "replay" {
			l.Replay = &v
		} else {
			l.Stages = append(l.Stages, v)
		}
	}
	for i := range summaries {
		line(summaries[i].Of).DLQ = &summaries[i]
	}
	return out
}
