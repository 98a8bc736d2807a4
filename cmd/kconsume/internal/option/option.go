// Package option is every setting of kconsume in one table, and where their
// values come from: flag, then environment, then file, then default.
package option

import (
	"strings"

	"github.com/xrash/smetrics"
)

// Kind is a setting's type.
type Kind uint8

const (
	Text      Kind = iota // string
	List                  // []string, commas separate
	Lines                 // []string, commas do not; in the environment one per line
	Duration              // time.Duration, more than zero
	Durations             // []time.Duration, commas separate
	Number                // int, at least 1
	Size                  // int, bytes
	Bool                  // bool
	Choice                // string, one of Choices
	Start                 // Choice or a time
)

func (k Kind) list() bool { return k == List || k == Lines || k == Durations }

// Use says which commands a setting has a function in. The file and the
// environment may hold them all, whichever command reads them.
type Use uint32

const (
	Run    Use = 1 << iota // run, dev, validate, config show
	Topics                 // topics plan and apply
	Status
	Print     // what prints a table or JSON
	Show      // config show alone
	Retries   // retries list and adopt
	Adopt     // retries adopt alone
	Handlers  // plugin list, inspect and test
	Launch    // plugin inspect and test
	Listing   // plugin list alone
	Trial     // plugin test alone
	New       // plugin new alone
	Letters   // dlq and jobs
	Selecting // what chooses dead letters
	Filtering // what chooses groups of them
	Paging    // what lists
	Earlier   // dlq list alone
	Acting    // what wants a reason
	Planning  // what plans before it does something to them
	Replaying // dlq replay alone
	Listening // console alone
)

// Option is one setting.
type Option struct {
	Name    string // of the flag and of the file's key
	Alias   string // a short flag
	Kind    Kind
	Arg     string // what help calls the value
	Help    string
	Default string // written as in the environment
	// Computed is the default of a setting that follows from others.
	Computed func(*Set) any
	Choices  []string
	// Zero is a word for the zero value of a Duration.
	Zero string
	// Empty allows the empty text.
	Empty bool
	// Check says what to do about a value that cannot be, "" if it can.
	Check func(string) string
	// CheckAll says what is wrong with a list as a whole, and what to do about it.
	CheckAll func([]string) (wrong, todo string)
	Use      Use
	// Redact is what may be shown of a value, where that may hold a secret. nil = all.
	Redact func(string) string
	// Global allows the flag before the command too.
	Global bool
	// NotInFile is for what the file cannot say.
	NotInFile bool
}

// Env is the setting's name in the environment.
func (o *Option) Env() string {
	return "KCONSUME_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

// Redacted is what may be shown of a value.
func (o *Option) Redacted(value string) string {
	if o.Redact == nil {
		return value
	}
	return o.Redact(value)
}

// Find is the option of a name, nil if there is none.
func Find(table []Option, name string) *Option {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}

// For is the part of a table that a command uses.
func For(table []Option, use Use) []Option {
	var part []Option
	for _, o := range table {
		if o.Use&use != 0 {
			part = append(part, o)
		}
	}
	return part
}

// Nearest is the name that a slip of the finger would explain, "" if there is none.
func Nearest(name string, names []string) string {
	best, limit := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := distance(strings.ReplaceAll(name, "_", "-"), n); d < limit {
			best, limit = n, d
		}
	}
	return best
}

// distance is Levenshtein's, over bytes.
func distance(a, b string) int { return smetrics.WagnerFischer(a, b, 1, 1, 1) }
