package policy

import "subctl/cable/drivers"

// Secrecy is the level of protection of a pair's traffic from others on the way. A higher Secrecy
// is better.
type Secrecy int

// The values of Secrecy.
const (
	// Plain is a cable that does not encrypt.
	Plain Secrecy = iota
	// Closed is no cable. An unknown driver counts as no cable: it can neither be used, nor taken
	// for a driver that does not encrypt, since it may be one of a newer version that does.
	Closed
	// Encrypted is a cable that encrypts.
	Encrypted
)

// SecrecyOf returns the Secrecy of the cables of a driver.
func SecrecyOf(driver string) Secrecy {
	d := drivers.Find(driver)
	switch {
	case d == nil:
		return Closed
	case d.Properties().Encrypts:
		return Encrypted
	}
	return Plain
}

// Secrecy returns the Secrecy of the cable that was decided on.
func (d Decision) Secrecy() Secrecy {
	if d.Err != nil || d.ConfigErr != nil {
		return Closed
	}
	return SecrecyOf(d.Driver)
}
