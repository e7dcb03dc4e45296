package entry

// The names of the tools that bots have. Steps and results of turns have them, as do the settings of bots.
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
)

// Tools are the names of all tools, in the order in which they are shown. A new bot may use all of them.
var Tools = []string{
	RunCommandTool, ReadCommandTool, StopCommandTool, ReadFileTool, WriteFileTool, EditFileTool, SearchFilesTool,
	ReadThreadTool, ReadArtifactTool, ListThreadsTool, SearchEntriesTool, CreateThreadTool, SayTool,
}
