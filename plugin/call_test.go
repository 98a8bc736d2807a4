package plugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallContext(t *testing.T) {
	t.Run("live, then returned", func(t *testing.T) {
		c := &callContext{}
		if c.Err() != nil || c.Value("x") != nil {
			t.Error("a new context is not live")
		}
		if _, ok := c.Deadline(); ok {
			t.Error("a deadline out of nothing")
		}
		early := c.Done()
		c.cancel()
		c.expire() // too late to count
		<-early
		<-c.Done()
		if c.Err() != context.Canceled {
			t.Errorf("after the return: %v", c.Err())
		}
	})
	t.Run("Done is first asked for after the end", func(t *testing.T) {
		c := &callContext{}
		c.cancel()
		<-c.Done()
		if c.Err() != context.Canceled {
			t.Errorf("after the host's cancel: %v", c.Err())
		}
	})
	t.Run("the deadline passes before the alarm comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &callContext{deadline: time.Now().Add(time.Minute)}
			early := c.Done()
			time.Sleep(time.Minute - 1)
			if c.Err() != nil {
				t.Errorf("before the deadline: %v", c.Err())
			}
			time.Sleep(time.Nanosecond)
			if c.Err() != context.DeadlineExceeded {
				t.Errorf("at the deadline: %v", c.Err())
			}
			<-early
		})
	})
	t.Run("contexts made from it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &callContext{deadline: time.Now().Add(time.Minute)}
			kept, stop := context.WithTimeout(c, time.Hour)
			defer stop()
			released, release := context.WithCancel(c)
			release()
			ran := make(chan struct{})
			context.AfterFunc(c, func() { close(ran) })
			if d, _ := kept.Deadline(); !d.Equal(c.deadline) {
				t.Errorf("the child's deadline is %v", d)
			}
			synctest.Wait()
			if n := len(c.children); n != 2 {
				t.Errorf("%d children registered, want 2: one was released", n)
			}
			c.expire()
			<-kept.Done()
			<-ran
			if kept.Err() != context.DeadlineExceeded || released.Err() != context.Canceled {
				t.Errorf("children: %v, %v", kept.Err(), released.Err())
			}
			after, stopAfter := context.WithCancel(c)
			defer stopAfter()
			if after.Err() != context.DeadlineExceeded {
				t.Errorf("a child made after the end: %v", after.Err())
			}
		})
	})
}
