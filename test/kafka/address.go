package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// site is the loopback address of one cluster, and its ports.
//
// Every cluster has a 127.x.y.z of its own, claimed by a listener that it holds
// for its lifetime. So the ports of a stopped node stay free until it comes
// back: nobody else binds that address, and no outgoing connection takes them,
// as those start from 127.0.0.1.
type site struct {
	host  string
	guard net.Listener
}

// basePort is the claim's port; the nodes' follow it.
const basePort = 19090

// claim finds an address whose ports for so many nodes are all free.
func claim(nodes int) (*site, error) {
	const tries = 100
	var last error
	for range tries {
		// 127.0.0.0/16 is left to everybody else.
		host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
		guard, err := net.Listen("tcp", host+":"+strconv.Itoa(basePort))
		if err == nil {
			s := &site{host: host, guard: guard}
			if err = s.free(nodes); err == nil {
				return s, nil
			}
			guard.Close()
		}
		if last = err; !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("claim a loopback address with ports from %d on: %w", basePort, last)
}

// free tells whether nobody listens on the ports, on all addresses for instance.
func (s *site) free(nodes int) error {
	for i := range nodes {
		for _, addr := range []string{s.broker(i), s.controller(i)} {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			l.Close()
		}
	}
	return nil
}

func (s *site) broker(i int) string     { return s.port(2 + 2*i) }
func (s *site) controller(i int) string { return s.port(3 + 2*i) }

func (s *site) port(n int) string { return net.JoinHostPort(s.host, strconv.Itoa(basePort+n)) }
