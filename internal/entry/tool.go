package entry

import "slices"

// The names of bots' tools, as they occur in steps and results of turns and in the settings of bots.
const (
	RunCommandTool    = "run_command"
	ReadCommandTool   = "read_command"
	StopCommandTool   = "stop_command"
	ReadFileTool      = "read_file"
	WriteFileTool     = "write_file"
	EditFileTool      = "edit_file"
	SearchFilesTool   = "search_files"
	ReadThreadTool    = "read_thread"
	ReadArtifactTool  = "read_artifact"
	ListThreadsTool   = "list_threads"
	SearchEntriesTool = "search_entries"
	CreateThreadTool  = "create_thread"
	SayTool           = "say"
	DelegateTaskTool  = "delegate_task"
	FetchTool         = "fetch"
)

// Tools lists all tools, in the order in which they are shown.
var Tools = []string{
	RunCommandTool, ReadCommandTool, StopCommandTool, ReadFileTool, WriteFileTool, EditFileTool, SearchFilesTool,
	ReadThreadTool, ReadArtifactTool, ListThreadsTool, SearchEntriesTool, CreateThreadTool, SayTool, DelegateTaskTool, FetchTool,
}

// DefaultTools are the tools of a bot unless others are named: all that stay within the house. [FetchTool] is not among them,
// because a bot that was tricked could use it to send what it knows to anyone.
var DefaultTools = slices.DeleteFunc(slices.Clone(Tools), func(name string) bool { return name == FetchTool })
