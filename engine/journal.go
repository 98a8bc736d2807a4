package engine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// journal remembers, over the death of this process, whether it ended cleanly
// and, after one that did not, which records it had in hand: a record that takes
// the whole process down would otherwise do so for ever, since a crash costs no
// attempt.
//
// In normal running it writes nothing but its state: unclean at the start, clean
// at the end. After an unclean end the first records of each partition go one at
// a time, and each is written down before it is sent and when it was answered.
// One that was in hand at a death goes all alone; after three it is to blame,
// provided that another record has been answered since this process started: a
// handler that dies on any record is the handler's fault.
//
// The file is a log of lines, "clean", "begin ID" and "end ID", and a count per
// suspect, "crashes N ID"; ids are quoted. It survives the process, not the
// machine: nothing is synced. The owner loop alone uses it.
type journal struct {
	path     string
	file     *os.File // nil: there is no journal
	lock     *os.File
	crashes  map[string]int // of records that were in hand when the process died
	unclean  bool           // the last end was
	answered bool           // this process has had an answer to a record that is no suspect
}

// Crashes of the process with a record in hand.
const (
	crashesAlone = 1 // from here on it goes with no other record in flight
	crashesBlame = 3
)

// openJournal reads what the last process left and marks this one as running.
// An empty path is a journal that remembers nothing.
func openJournal(path string) (*journal, error) {
	j := &journal{path: path, crashes: map[string]int{}}
	if path == "" {
		return j, nil
	}
	if err := j.own(); err != nil {
		return nil, err
	}
	old, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err == nil {
		clean, inHand := j.read(bufio.NewScanner(old))
		old.Close()
		j.unclean = !clean
		for id := range inHand {
			j.crashes[id]++
		}
		if clean {
			clear(j.crashes)
		}
	}
	err = j.rewrite()
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		// No reason to consume nothing. What the last process left stays, and
		// whoever writes to it meets the same error.
		j.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return j, nil
		}
	}
	return j, err
}

// own takes the journal for this process. The lock is a file beside it, as the
// journal itself is replaced, and ends with the process, however that ends.
func (j *journal) own() error {
	lock, err := os.OpenFile(j.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return fmt.Errorf("open journal %s: another process of this group uses it", j.path)
	}
	j.lock = lock
	return nil
}

// read takes a journal's lines in.
func (j *journal) read(lines *bufio.Scanner) (clean bool, inHand map[string]bool) {
	inHand = map[string]bool{}
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		count := ""
		if word == "crashes" {
			count, rest, _ = strings.Cut(rest, " ")
		}
		id, err := strconv.Unquote(rest)
		if err != nil && word != "clean" {
			continue // cut off by the death of the process
		}
		switch word {
		case "clean":
			clean = true
		case "begin":
			inHand[id] = true
		case "end":
			delete(inHand, id)
			delete(j.crashes, id)
		case "crashes":
			if n, err := strconv.Atoi(count); err == nil && n > 0 {
				j.crashes[id] = n
			}
		}
	}
	return clean, inHand
}

// rewrite begins the file anew with the suspects, by a rename, so that a death
// in the middle, or a full disk, leaves the old one.
func (j *journal) rewrite() error {
	fresh := j.path + ".new"
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	var suspects []byte
	for id, n := range j.crashes {
		suspects = fmt.Appendf(suspects, "crashes %d %q\n", n, id)
	}
	_, err = f.Write(suspects)
	if err == nil {
		err = os.Rename(fresh, j.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write journal: %w", err), f.Close(), os.Remove(fresh))
	}
	j.file = f
	return nil
}

func (j *journal) note(word, id string) error {
	if j.file == nil {
		return nil
	}
	if _, err := fmt.Fprintf(j.file, "%s %q\n", word, id); err != nil {
		return fmt.Errorf("write journal %s: %w", j.path, err)
	}
	return nil
}

// begin writes down that a record is about to be sent.
func (j *journal) begin(id string) error { return j.note("begin", id) }

// end writes down that it was answered: it did not take the process down.
func (j *journal) end(id string) error {
	if j.crashes[id] == 0 {
		j.answered = true
	}
	delete(j.crashes, id)
	return j.note("end", id)
}

// alone reports that a record must go with no other in flight.
func (j *journal) alone(id string) bool { return j.crashes[id] >= crashesAlone }

// blamed reports that a record takes the process down, with proof.
func (j *journal) blamed(id string) bool { return j.crashes[id] >= crashesBlame && j.answered }

// suspected reports that a record would be blamed if there were proof.
func (j *journal) suspected(id string) bool { return j.crashes[id] >= crashesBlame && !j.answered }

// close marks a clean end.
func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	_, err := fmt.Fprintln(j.file, "clean")
	return errors.Join(err, j.file.Close(), j.lock.Close())
}
