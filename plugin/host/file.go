package host

import (
	"context"
	"os"
	"syscall"
	"time"
)

// fileState tells one content of a file from another, as far as that can be seen
// without reading it. The zero value is that of no file.
type fileState struct {
	device, inode  uint64
	size           int64
	changed, moved syscall.Timespec // mtime and ctime
}

// stat follows symbolic links: one that leads elsewhere now is a change.
func stat(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileState{}
	}
	return fileState{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// watchFile upgrades the handler when its file has changed and then stayed as
// it is from one look to the next, until Stop. What failed is not tried again
// before the file changes again.
func (h *Host) watchFile() {
	var before fileState
	for sleep(h.stop, h.cfg.look) {
		now := stat(h.cfg.Path)
		due := changed(h.looked(), before, now)
		if before = now; !due {
			continue
		}
		if _, err := h.Reload(h.stop, ReloadConfig{}); err != nil && h.stop.Err() == nil {
			h.cfg.Logger.Error("handler's file has changed, and does not do: install another one, or reload to try again", "why", err.Error())
		}
	}
}

// changed reports whether a file is another one than was looked at for a start,
// and the same as at the look before.
func changed(looked, before, now fileState) bool {
	return now != looked && now == before && now != (fileState{})
}

// looked is what the file was when it was last looked at for a start.
func (h *Host) looked() fileState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.file
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
