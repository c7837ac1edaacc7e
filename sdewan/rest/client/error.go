package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"unicode"

	"subctl/internal/secret"
)

// Class is the cause of an error, and so determines what may help.
type Class int

const (
	// Unavailable is a CNF that does not answer, or answers nonsense, or that it has failed (5xx).
	// Trying again may help.
	Unavailable Class = iota
	// Rejected is an object that the CNF does not accept as long as it holds what it holds (4xx):
	// the object is wrong, or an object that it refers to is missing, or it is in use.
	Rejected
	// Unauthorized is a wrong password.
	Unauthorized
	// Untrusted is a certificate that the CA did not sign, or not for this name, or that has
	// expired.
	Untrusted
)

// errTooLong is the error of a call without an answer in time.
var errTooLong = errors.New("it took too long")

// Error is a call that failed. Its text has no secrets of the object that was sent.
type Error struct {
	Class   Class
	Code    int    // of HTTP; 0 if there was no response
	Message string // of the CNF, or what is wrong with its response
	Err     error  // the cause, if there was no response
}

// Error returns what the CNF said, or why it said nothing.
func (e *Error) Error() string {
	switch {
	case e.Class == Unauthorized:
		return "the CNF does not accept the password of root"
	case e.Class == Untrusted:
		return fmt.Sprintf("the certificate of the CNF is not accepted: %v", e.Err)
	case e.Err != nil:
		return fmt.Sprintf("the CNF does not answer: %v", e.Err)
	case e.Code == 0 || e.Code < http.StatusMultipleChoices:
		return "the CNF answers with nonsense: " + e.Message
	case e.Message == "":
		return fmt.Sprintf("the CNF answers %d", e.Code)
	}
	return fmt.Sprintf("the CNF answers %d: %s", e.Code, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an error of this package; Unavailable for any other one.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Unavailable
}

// CodeOf returns the status code of HTTP with which a CNF answered; 0 if it did not.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// TimedOut reports whether a call has failed because the CNF did not answer in time.
func TimedOut(err error) bool { return errors.Is(err, errTooLong) }

// failed returns the error for a call without a response.
func failed(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Err: errTooLong}
	}
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &certificate):
		// it quotes the certificate
		return &Error{Class: Untrusted, Err: errors.New(clean(certificate.Err.Error(), nil))}
	case errors.As(err, &authority), errors.As(err, &name), errors.As(err, &invalid):
		return &Error{Class: Untrusted, Err: errors.New(clean(err.Error(), nil))}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return &Error{Err: fmt.Errorf("%s: %w", op.Op, op.Err)} // without ports, which differ each time
	}
	return &Error{Err: errors.New(clean(err.Error(), nil))}
}

// nonsense returns the error for a response that is none of the API.
func nonsense(code int, format string, args ...any) error {
	return &Error{Code: code, Message: clean(fmt.Sprintf(format, args...), nil)}
}

// refusal returns the error for a status code from 300 and its body.
func refusal(code int, body []byte, secrets []string) error {
	e := &Error{Code: code, Class: Rejected, Message: clean(message(body), secrets)}
	switch {
	// the CNF holds as many objects as it may
	case code >= http.StatusInternalServerError && code != http.StatusInsufficientStorage:
		e.Class = Unavailable
	case code < http.StatusBadRequest:
		e.Class = Unavailable
		e.Message = "a redirect, which is not followed"
	}
	return e
}

// message returns the text of {"message":"text"}. OpenWrt does not escape quotes in the text.
func message(body []byte) string {
	var m struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &m) == nil && m.Message != "" {
		return m.Message
	}
	s := strings.TrimSpace(string(body))
	if strings.HasPrefix(s, "<") {
		return "" // a page for people
	}
	if rest, ok := strings.CutPrefix(s, `{"message":"`); ok {
		s, _, _ = strings.Cut(rest, `"}`)
	}
	return s
}

// clean makes a text fit for an error: one line of at most 300 bytes, without control characters
// and without secrets.
func clean(s string, secrets []string) string {
	for _, hidden := range secrets {
		s = strings.ReplaceAll(s, hidden, secret.Hidden)
	}
	s = hideParts(s[:min(len(s), 2*maxMessage)], secrets)
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}

// part is the length of a part of a secret, in bytes, from which on it is hidden, too. Shorter
// texts are in a key by chance.
const part = 12

// hideParts hides parts of long secrets: a CNF may quote the beginning of a key.
func hideParts(s string, secrets []string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		end := i
		for _, hidden := range secrets {
			for n := max(part,
				end-i+1); len(hidden) > part && i+n <= len(s) && strings.Contains(hidden, s[i:i+n]); n++ {
				end = i + n
			}
		}
		if end > i {
			b.WriteString(secret.Hidden)
			i = end
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}
