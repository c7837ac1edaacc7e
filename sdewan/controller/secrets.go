package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
)

// credentialsFor is the time for which Secrets are assumed to be unchanged. After a wrong password,
// or certificate, they are looked up at once.
const credentialsFor = time.Minute

// secrets has what was read in Secrets within credentialsFor: many pods of a CNF, which have the
// same Secrets, need not read them one by one.
type secrets struct {
	reader client.Reader // of the API server itself: nobody may list all Secrets of a cluster because of a few
	now    func() time.Time

	mu       sync.Mutex
	readings map[secretKey]*reading
}

// secretKey is a key in a Secret.
type secretKey struct {
	secret types.NamespacedName
	key    string
}

// reading is a value that one pod has read, or reads while others wait.
type reading struct {
	turn  chan struct{} // has an element while a pod reads
	began time.Time
	value []byte // is not changed; empty as long as it was not found
}

func newSecrets(reader client.Reader, now func() time.Time) *secrets {
	return &secrets{reader: reader, now: now, readings: map[secretKey]*reading{}}
}

// get returns the value of a key in a Secret, which is empty if the Secret does not have the key,
// and a time after which it was read. The caller must not change the value.
func (s *secrets) get(ctx context.Context, k secretKey) (value []byte, since time.Time, err error) {
	r := s.reading(k)
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, r.began, ctx.Err()
	}
	if len(r.value) == 0 {
		var found corev1.Secret
		if err := s.reader.Get(ctx, k.secret, &found); err != nil {
			return nil, r.began, err
		}
		r.value = found.Data[k.key]
	}
	return r.value, r.began, nil
}

// reading returns the reading of a key, which is new if there was none, or it is too old. It is
// forgotten after credentialsFor, whether anybody reads again or not.
func (s *secrets) reading(k secretKey) *reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if r := s.readings[k]; r != nil && now.Sub(r.began) < credentialsFor {
		return r
	}
	r := &reading{turn: make(chan struct{}, 1), began: now}
	s.readings[k] = r
	time.AfterFunc(credentialsFor, func() { s.end(k, r) })
	return r
}

// end forgets a reading, unless there is a later one.
func (s *secrets) end(k secretKey, r *reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readings[k] == r {
		delete(s.readings, k)
	}
}

// forget makes the next caller of get read a pod's Secrets again.
func (s *secrets) forget(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range credentialsOf(p) {
		delete(s.readings, c.secretKey)
	}
}

// credential is a part of what a pod is reached with.
type credential struct {
	secretKey
	label, what string
}

// credentialsOf returns where the password and the CA of a pod are. The name of a Secret is empty
// if the pod lacks its label.
func credentialsOf(p *corev1.Pod) [2]credential {
	in := func(label, key, what string) credential {
		return credential{
			secretKey{types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[label]}, key},
			label,
			what,
		}
	}
	return [2]credential{
		in(sdewan.AccountLabel, "password", "the password of root"),
		in(sdewan.CertLabel, "ca.crt", "the CA that has signed the CNF's certificate"),
	}
}
