package rest

// Object is an object of the API: a pointer to one of the structs of this package.
type Object interface {
	// GetName returns the name, which is the last part of the object's path.
	GetName() string
	// SetName sets the name: that in the path of a request decides, not that in its body.
	SetName(name string)
}

func (o *Policy) GetName() string       { return o.Name }
func (o *Rule) GetName() string         { return o.Name }
func (o *Zone) GetName() string         { return o.Name }
func (o *Forwarding) GetName() string   { return o.Name }
func (o *FirewallRule) GetName() string { return o.Name }
func (o *Redirect) GetName() string     { return o.Name }
func (o *Proposal) GetName() string     { return o.Name }
func (o *Remote) GetName() string       { return o.Name }
func (o *NAT) GetName() string          { return o.Name }
func (o *Route) GetName() string        { return o.Name }
func (o *RouteRule) GetName() string    { return o.Name }
func (o *Application) GetName() string  { return o.Name }
func (o *Service) GetName() string      { return o.Name }

func (o *Policy) SetName(name string)       { o.Name = name }
func (o *Rule) SetName(name string)         { o.Name = name }
func (o *Zone) SetName(name string)         { o.Name = name }
func (o *Forwarding) SetName(name string)   { o.Name = name }
func (o *FirewallRule) SetName(name string) { o.Name = name }
func (o *Redirect) SetName(name string)     { o.Name = name }
func (o *Proposal) SetName(name string)     { o.Name = name }
func (o *Remote) SetName(name string)       { o.Name = name }
func (o *NAT) SetName(name string)          { o.Name = name }
func (o *Route) SetName(name string)        { o.Name = name }
func (o *RouteRule) SetName(name string)    { o.Name = name }
func (o *Application) SetName(name string)  { o.Name = name }
func (o *Service) SetName(name string)      { o.Name = name }
