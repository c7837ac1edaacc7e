//go:build linux

package strongswan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/strongswan/govici/vici"
	"golang.org/x/sys/unix"
)

// viciTimeout bounds a vici session, whose requests the daemon answers in milliseconds.
const viciTimeout = 10 * time.Second

// talk calls f with a session.
func (i *Instance) talk(f func(*vici.Session) error) error {
	s, err := i.dial(viciTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

// dial opens a session that ends after a timeout, or with a timeout of 0 never.
func (i *Instance) dial(timeout time.Duration) (*vici.Session, error) {
	deadline := time.Now().Add(viciTimeout)
	s, err := vici.NewSession(vici.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "unix", viciSocket(i.dir))
			if errors.Is(err, unix.EAGAIN) && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond) // the daemon's queue of connections is short, and full
				continue
			}
			if err == nil && timeout > 0 {
				err = conn.SetDeadline(time.Now().Add(timeout))
			}
			return conn, err
		}
	}))
	if err != nil {
		return nil, fmt.Errorf("talking to charon: %w", err)
	}
	return s, nil
}

// request sends a command and returns the answer.
func request(s *vici.Session, command string, args map[string]any) (*vici.Message, error) {
	m, err := section(args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	answer, err := s.CommandRequest(command, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return answer, nil
}

// Version returns the version of the running daemon, such as "5.9.8".
func (i *Instance) Version() (version string, err error) {
	err = i.talk(func(s *vici.Session) error {
		m, err := request(s, "version", nil)
		if err == nil {
			version = str(m, "version")
		}
		return err
	})
	return version, err
}

// section returns a message that holds settings.
func section(settings map[string]any) (*vici.Message, error) {
	m := vici.NewMessage()
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		if err := m.Set(k, settings[k]); err != nil {
			return nil, fmt.Errorf("setting %s: %w", k, err)
		}
	}
	return m, nil
}

// sub returns a section of a message, or an empty section if there is none.
func sub(m *vici.Message, key string) *vici.Message {
	if s, ok := m.Get(key).(*vici.Message); ok {
		return s
	}
	return vici.NewMessage()
}

func str(m *vici.Message, key string) string {
	s, _ := m.Get(key).(string)
	return s
}

func num(m *vici.Message, key string) uint64 {
	n, _ := strconv.ParseUint(str(m, key), 10, 64) // charon writes numbers
	return n
}

func list(m *vici.Message, key string) []string {
	l, _ := m.Get(key).([]string)
	return l
}
