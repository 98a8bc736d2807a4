package main

import "testing"

func TestUsualStateDir(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		uid  int
		want string
	}{
		{map[string]string{"STATE_DIRECTORY": "/var/lib/kconsume/a:/var/lib/other"}, 0, "/var/lib/kconsume/a"},
		{map[string]string{"HOME": "/root"}, 0, "/var/lib/kconsume"},
		{map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/s"}, 1000, "/s/kconsume"},
		{map[string]string{"HOME": "/home/u"}, 1000, "/home/u/.local/state/kconsume"},
	} {
		if got := usualStateDir(func(k string) string { return c.env[k] }, c.uid); got != c.want {
			t.Errorf("%v as %d: %s, want %s", c.env, c.uid, got, c.want)
		}
	}
}
