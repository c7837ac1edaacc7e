package role

import (
	"fmt"
	"maps"
	"time"
)

// Refused are the writes that the API server has refused, such as by a quota, an admission policy
// or for lack of addresses. They are tried again, more and more slowly, and do not delay other
// writes. Keys are by refusedKey.
type Refused map[string]RefusedWrite

// RefusedWrite is a refused write.
type RefusedWrite struct {
	Message string
	until   time.Time // when it is to be tried again
	pause   time.Duration
}

const (
	FirstPause   = time.Second
	LongestPause = time.Minute
)

// RefusedKey identifies an object among the objects of all kinds.
func RefusedKey(o Object) string { return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()) }

// Wait returns the time until a refused write is to be tried again; at most 0 if it may be tried
// now.
func (r Refused) Wait(o Object, now time.Time) time.Duration {
	return r[RefusedKey(o)].until.Sub(now)
}

// With returns what is refused after a write of an object at a time; refused is nil if it was
// accepted.
func (r Refused) With(o Object, refused error, now time.Time) Refused {
	key := RefusedKey(o)
	was, had := r[key]
	if refused == nil && !had {
		return r
	}
	out := maps.Clone(r)
	if out == nil {
		out = Refused{}
	}
	if refused == nil {
		delete(out, key)
		return out
	}
	pause := min(max(2*was.pause, FirstPause), LongestPause)
	out[key] = RefusedWrite{refused.Error(), now.Add(pause), pause}
	return out
}

// Since returns what is refused, without what has not been tried again for long: nobody wants it
// any more.
func (r Refused) Since(now time.Time) Refused {
	out := maps.Clone(r)
	maps.DeleteFunc(out, func(_ string, x RefusedWrite) bool { return now.Sub(x.until) > LongestPause })
	return out
}
