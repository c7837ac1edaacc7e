package parts

import "time"

// Timer expires once after each Reset.
type Timer interface {
	// C returns the channel on which the timer sends when it has expired. After Reset it may still
	// send once for the time that was set before.
	C() <-chan struct{}
	Reset(d time.Duration) error
	Close() error
}

// goTimer is a timer of Go's runtime.
type goTimer struct {
	timer *time.Timer
	c     chan struct{}
}

func newGoTimer() Timer {
	t := &goTimer{c: make(chan struct{}, 1)}
	t.timer = time.AfterFunc(time.Hour, func() {
		select {
		case t.c <- struct{}{}:
		default:
		}
	})
	t.timer.Stop()
	return t
}

func (t *goTimer) C() <-chan struct{} { return t.c }

func (t *goTimer) Reset(d time.Duration) error {
	t.timer.Reset(d)
	return nil
}

func (t *goTimer) Close() error {
	t.timer.Stop()
	return nil
}
